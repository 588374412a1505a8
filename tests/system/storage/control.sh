#!/bin/bash
# control.sh - the control sockets of the targets: an answer without text; images of a cluster that does not answer
# follows: man/verbena-target.8; man/verbena-srp-target.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
TARGET=$BUILD/storage/verbena-target SRP=$BUILD/storage/verbena-srp-target
[ -x "$TARGET" ] && [ -x "$SRP" ] || { skip control "verbena-target or verbena-srp-target is not built"; exit 0; }
NQN=nqn.2026-01.test:control
ended() {
	local status=$?
	[ $BASHPID = $$ ] || return
	trap - EXIT INT TERM
	[ -z "$(jobs -p)" ] || kill -9 $(jobs -p) 2>/dev/null
	(exit $status)
	cleanup
}
trap ended EXIT
trap 'exit 130' INT TERM
says() { [ -s "$work/$1" ] || gone $!; } # FILE

empty_list() {
	free_port
	"${run[@]}" "$SRP" --export memory:1M --port "$port" --control "$work/srp.sock" >"$work/srp.out" 2>&1 </dev/null &
	wait_for 30 says srp.out && "$SRP" list --control "$work/srp.sock" | grep -q memory:1M && "$SRP" remove 0 --control "$work/srp.sock" || { cat "$work/srp.out"; return 1; }
	"$SRP" list --control "$work/srp.sock" >"$work/list" && [ ! -s "$work/list" ] && "$SRP" stop --control "$work/srp.sock" && wait $!
}
asks() { find /proc/"$1"/fd -lname 'socket:*' 2>/dev/null | grep -q .; } # PID: it has a socket, and connects at once
# A target that has died has not answered
no_answer() {
	free_port
	"${run[@]}" "$SRP" --export memory:1M --port "$port" --control "$work/srp.sock" >"$work/srp2.out" 2>&1 </dev/null &
	local pid=$!
	wait_for 30 says srp2.out || return 1
	kill -STOP "$(program_of $pid)"
	"$SRP" list --control "$work/srp.sock" >"$work/list" 2>&1 &
	local list=$!
	wait_for 9 asks $list || return 1
	kill -KILL "$(program_of $pid)"
	! wait $list
}
printf '[global]\nmon_host = 127.0.0.1:1\nauth_client_required = none\nkeyring = /dev/null\n' >"$work/dead.conf"
has_rbd() { ! "$TARGET" --port 0 --ceph-conf /nowhere --export rbd:p/i 2>&1 | grep -q "was built without\|cannot be loaded"; }
# Within 5 s, half of the time that the cluster has for its answer
status_says() { timeout 5 "$TARGET" status --control "$work/$1.sock" | grep -q "$2"; } # SOCKET TEXT
starts() {
	free_port
	"$TARGET" --export memory:1M --export rbd:p/i --ceph-conf "$work/dead.conf" --port "$port" --nqn $NQN --control "$work/start.sock" >"$work/start.out" 2>&1 &
	local pid=$!
	wait_for 5 test -S "$work/start.sock" && status_says start '"opening": 1' && refused_add && timeout 5 "$TARGET" stop --control "$work/start.sock" && wait_for 5 gone $pid && wait $pid
}
refused_add() { ! timeout 5 "$TARGET" add $NQN nsid=5 backend=memory size=1M --control "$work/start.sock"; }
many_adds() {
	local i pid
	free_port
	"$TARGET" --export memory:1M --port "$port" --nqn $NQN --control "$work/adds.sock" >"$work/adds.out" 2>&1 &
	pid=$!
	wait_for 30 says adds.out || return 1
	for i in $(seq 2 21); do
		"$TARGET" add $NQN nsid="$i" backend=rbd path=p/i"$i" ceph_conf="$work/dead.conf" --control "$work/adds.sock" >/dev/null 2>&1 &
	done
	# more than the eight commands that are answered at once
	wait_for 5 status_says adds '"opening": \(9\|1[0-9]\|20\),' && timeout 5 "$TARGET" metrics --control "$work/adds.sock" | grep -q EOF && timeout 5 "$TARGET" stop --control "$work/adds.sock" && wait_for 10 gone $pid && wait $pid
}

check "verbena-srp-target list prints nothing, and succeeds, without a unit" empty_list
check "… and fails if the target dies before it answers" no_answer
if has_rbd; then
	check "verbena-target answers status while it opens its images at the start, and can be stopped" starts
	check "… and while twenty images of a dead cluster are being added" many_adds
else
	skip control_rbd "librbd is not there"
fi
exit $((failed > 0))

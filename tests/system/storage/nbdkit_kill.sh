#!/bin/bash
# nbdkit_kill.sh - fio writes and verifies through the nbdkit plugin while verbena-target is killed and restarted
# follows: man/nbdkit-verbena-plugin.1; fio(1)
# SPDX-License-Identifier: MIT
# usage: nbdkit_kill.sh [KILLS]   MEDIUM=rbd:POOL: on an image of a Ceph cluster
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/medium.sh"
KILLS=${1:-4}
TARGET=$BUILD/storage/verbena-target
PLUGIN=$BUILD/storage/nbdkit-verbena-plugin.so
[ -x "$TARGET" ] && [ -e "$PLUGIN" ] || { skip nbdkit_kill "verbena-target or the plugin is not built"; exit 0; }
sanitized && { skip nbdkit_kill "a plugin with sanitizers in it cannot be loaded"; exit 0; }
need nbdkit fio
fio --enghelp 2>/dev/null | grep -qw nbd || { skip nbdkit_kill "fio is built without nbd"; exit 0; }
MB=16
NQN=nqn.2026-01.test:nbd
target= server=

nbdkit_kill_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	[ -z "$target" ] || die "$(program_of "$target")" "$target"
	[ -z "$server" ] || die "$(program_of "$server")" "$server"
	(exit $status)
	cleanup
}
trap nbdkit_kill_cleanup EXIT
trap 'exit 130' INT TERM

target_speaks() { grep -qs "^nvme" "$work/target.out" || gone "$target"; }
serve() { # TRANSPORT ARGS…
	rm -f "$work/target.out"
	"${run[@]}" "$TARGET" --export "$medium" "${medium_args[@]}" --transport "$1" --nqn $NQN --port "$port" "${@:2}" >"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs "^nvme" "$work/target.out"
}
# The file is locked until the kernel has finished the requests of a killed target
target_on() {
	local _
	for _ in $(seq 50); do
		serve "$@" && return 0
		die "$target"
		sleep 0.1
	done
	return 1
}
written() { sed -n 's/.*"writes": \([0-9]*\).*/\1/p' <("$TARGET" status --port "$port" 2>/dev/null) | head -1; }
runs() { kill -0 "$fio" 2>/dev/null; }
busy() { [ "$(written)" -gt 200 ] 2>/dev/null || ! runs; }

# verified TRANSPORT ARGS…: of the target
verified() {
	local killed=0 fio status
	rm -f "$work/nbd"
	medium "$work/image" ${MB}M || return 1
	: >"$work/target.err"
	free_port
	target_on "$@" || { cat "$work/target.err"; return 1; }
	"${run[@]}" nbdkit -f -U "$work/nbd" "$PLUGIN" url="$(head -1 "$work/target.out")" queues=2 >"$work/nbdkit.out" 2>&1 &
	server=$!
	wait_for 20 test -S "$work/nbd" || { cat "$work/nbdkit.out"; return 1; }
	# writes and verifies the whole disk again and again, until there were enough kills
	timeout -k 2 $((120 * SLOW)) fio --name=verified --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd" --rw=randwrite --bsrange=4k-64k --size=${MB}M \
		--iodepth=16 --fsync=64 --time_based --runtime=100 --verify=crc32c --verify_fatal=1 --verify_backlog=128 --verify_state_save=0 >"$work/fio.out" 2>&1 &
	fio=$!
	while [ $killed -lt $KILLS ] && wait_for 60 busy && runs; do
		die "$(program_of "$target")" "$target"
		killed=$((killed + 1))
		target_on "$@" || break
	done
	wait_for 60 busy
	kill -INT "$(program_of $fio)" 2>/dev/null # it ends in order
	wait $fio
	status=$?
	kill "$(program_of "$server")"
	wait "$server"
	die "$(program_of "$target")" "$target"
	server= target=
	echo "killed $killed times, fio ended with $status"
	[ $status = 0 ] && [ $killed = $KILLS ] && ! grep -q "verify:\|error=" "$work/fio.out" && return 0
	tail -n 100 "$work"/{fio,nbdkit}.out "$work/target.err"
	return 1
}

for t in tcp rdma; do
	check "fio by nbdkit, $t: what is verified is right while the target is killed $KILLS times" verified $t
done
on_rbd || check "fio by nbdkit, rdma, mapped: what is verified is right while the target is killed $KILLS times" verified rdma --mapped
VERBENA_DEVICES=iwarp:lo check "fio by nbdkit, iWARP: what is verified is right while the target is killed $KILLS times" verified rdma
finish

#!/bin/bash
# users.sh - two users of one machine: root's broker serves both, and they talk to each other as two hosts do, over loopback
# follows: verbena-broker(8), "Users"
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../lib.sh"
need ip setpriv ibv_rc_pingpong ib_send_bw
[ "$(id -u)" = 0 ] || { skip users "only root can be two users"; exit 0; }
sanitized && { skip users "a sanitized build writes its reports as one user"; exit 0; }
USER_A=47111 USER_B=47112
as() { # UID COMMAND…
	setpriv --reuid "$1" --regid "$1" --clear-groups env -u XDG_RUNTIME_DIR -u VERBENA_RUNTIME HOME=/nonexistent "${@:2}"
}
as $USER_A test -x "$VERBENA" || { skip users "$BUILD is not open to other users"; exit 0; }

# /run, and port 4791, of this script alone
if [ -z "${VERBENA_USERS_ALONE:-}" ]; then
	cleanup_parent=$work
	unshare -mn true 2>/dev/null || { skip users "no right to make mount namespaces"; exit 0; }
	VERBENA_USERS_ALONE=1 unshare -mn "$BASH" "$(realpath "$0")"
	status=$?
	rm -rf "$cleanup_parent"
	exit $status
fi
ip link set lo up
mount -t tmpfs -o mode=755 none /run
unset VERBENA_RUNTIME
(cd "$HERE" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/verify" verify.c plan.c link.c -libverbs) || exit 1
run_as() { # UID
	if [ "$1" = 0 ]; then run=("$VERBENA" run); else run=(setpriv --reuid "$1" --regid "$1" --clear-groups env -u XDG_RUNTIME_DIR HOME=/nonexistent "$VERBENA" run); fi
}
brokers() { # all of this network namespace
	local p
	for p in $(pgrep -x verbena-broker); do
		[ "$(readlink "/proc/$p/ns/net")" = "$(readlink /proc/self/ns/net)" ] && echo "$p"
	done
}
no_broker() { [ -z "$(brokers)" ]; }
came() { ip -s -j link show lo | sed -n 's/.*"rx":{"bytes":\([0-9]*\).*/\1/p'; }

# across BYTES UID UID PROGRAM ARGS…: server of one, client of the other; at least so many bytes went over lo
across() {
	local least=$1 server_of=$2 client_of=$3 s c before
	shift 3
	before=$(came)
	run_as "$server_of"
	start_server "$@" || { said_by_both; return 1; }
	run_as "$client_of"
	start_client "$@"
	wait "$client"
	c=$?
	[ $c = 0 ] || wait_for 3 gone "$server" || kill "$server"
	wait "$server"
	s=$?
	if [ $s != 0 ] || [ $c != 0 ]; then
		echo "server ended with $s, client with $c: $*"
		said_by_both
		return 1
	fi
	[ $(($(came) - before)) -ge "$least" ] && return 0
	echo "only $(($(came) - before)) bytes went over lo"
	return 1
}

timeout 900 "$VERBENA" run ibv_asyncwatch -d roce_lo >"$work/root" 2>&1 </dev/null &
root=$!
check "root's broker is there" wait_for 20 grep -q 'async event FD' "$work/root"
D=(-d roce_lo)
for pair in "$USER_A $USER_B" "$USER_B $USER_A" "0 $USER_A" "$USER_A 0"; do
	for t in rc uc ud; do
		check "users $pair: $t, data right" across 5000000 $pair "$work/verify" "${D[@]}" -t $t -n 5000000
	done
	check "users $pair: ibv_rc_pingpong" across 1000000 $pair ibv_rc_pingpong "${D[@]}" -g 1 -s 4096 -n 200 -c
done
check "users $USER_A $USER_B: IPv6" across 5000000 $USER_A $USER_B "$work/verify" "${D[@]}" -g 2 -n 5000000
check "users $USER_A $USER_B: ib_write_bw" across 60000000 $USER_A $USER_B ib_write_bw -F -u 18 "${D[@]}" -n 1000

less() { # BYTES COMMAND…: less than that went over lo
	local most=$1 before
	shift
	before=$(came)
	"$@" || return 1
	[ $(($(came) - before)) -le "$most" ] && return 0
	echo "$(($(came) - before)) bytes went over lo"
	return 1
}
check "within one user nothing of it goes over lo" less 1000000 across 0 $USER_A $USER_A "$work/verify" "${D[@]}" -n 20000000
always() { VERBENA_WIRE=always "$@"; }
check "within one user, VERBENA_WIRE=always: all of it" always across 20000000 $USER_A $USER_A "$work/verify" "${D[@]}" -n 20000000
kill $root
wait $root 2>/dev/null
rm -rf /tmp/verbena-$USER_A /tmp/verbena-$USER_B
finish

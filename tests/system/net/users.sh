#!/bin/bash
# users.sh - two users of one machine: root's broker serves both, and they communicate like two hosts, over loopback
# follows: verbena-broker(8), "Users"
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
need ip setpriv ibv_rc_pingpong ib_send_bw
[ "$(id -u)" = 0 ] || { skip users "only root can be two users"; exit 0; }
sanitized && { skip users "a sanitized build writes its reports as one user"; exit 0; }
USER_A=47111 USER_B=47112
as() { # UID COMMAND…
	setpriv --reuid "$1" --regid "$1" --clear-groups env -u XDG_RUNTIME_DIR -u VERBENA_RUNTIME HOME=/nonexistent "${@:2}"
}
as $USER_A test -x "$VERBENA" || { skip users "$BUILD is not open to other users"; exit 0; }

# /run and port 4791 of this script only
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
brokers() { # all brokers of this network namespace
	local p
	for p in $(pgrep -x verbena-broker); do
		[ "$(readlink "/proc/$p/ns/net")" = "$(readlink /proc/self/ns/net)" ] && echo "$p"
	done
}
no_broker() { [ -z "$(brokers)" ]; }
came() { ip -s -j link show lo | sed -n 's/.*"rx":{"bytes":\([0-9]*\).*/\1/p'; }

# across BYTES UID UID PROGRAM ARGS…: a server of one user, a client of the other; at least BYTES bytes go over lo
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

less() { # BYTES COMMAND…: fewer bytes go over lo
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
# --- killed helpers ---
processes() { # NAME UID: process of this network namespace
	local p
	for p in $(pgrep -u "$2" -x "$1"); do
		[ "$(readlink "/proc/$p/ns/net")" = "$(readlink /proc/self/ns/net)" ] && ! gone "$p" && echo "$p"
	done
}
has() { [ -n "$(processes "$@")" ]; }
has_other() { # NAME UID PID
	has "$1" "$2" && [ "$(processes "$1" "$2")" != "$3" ]
}

# The keeper is killed during a transfer, which continues: both programs get channels from the next keeper
keeper_killed() {
	local bytes=200000000 keeper at s c _
	for _ in 1 2 3; do
		run_as $USER_A
		start_server "$work/verify" "${D[@]}" -S 100 "$@" -n $bytes || { said_by_both; return 1; }
		run_as $USER_B
		start_client "$work/verify" "${D[@]}" -S 100 "$@" -n $bytes
		sleep 0.6
		keeper=$(processes verbena-keeper 0)
		[ -n "$keeper" ] || { echo "no keeper"; said_by_both; return 1; }
		kill -9 $keeper
		at=$(came)
		wait "$client"
		c=$?
		wait "$server"
		s=$?
		if [ $c != 0 ] || [ $s != 0 ]; then
			echo "server ended with $s, client with $c"
			said_by_both
			return 1
		fi
		[ $(($(came) - at)) -gt 1000000 ] && echo "$(($(came) - at)) bytes after the kill" && return 0
		bytes=$((bytes * 3)) # it had ended before
	done
	echo "it was over before the keeper was killed"
	return 1
}
check "users $USER_A $USER_B: the keeper is killed, and a connection goes on by the next one's channels" keeper_killed -t rc
check "users $USER_A $USER_B: the keeper is killed, and datagrams go on by the next one's channels" keeper_killed -t ud -L 50

# Messages that root's broker has not read when it is killed: the next broker is told
(cd "$HERE" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/member" member.c -libverbs) || exit 1
in_group() { grep -q "$(printf '%02X' $(tr . '\n' <<<"$1" | tac))" /proc/net/igmp; }
joins() { # GROUP: the member prints this
	echo "$1" >&6
	wait_for 20 grep -qx "joined $1" "$work/member.out"
}
unread() {
	local broker member status=0
	mkfifo -m 666 "$work/member.in"
	run_as $USER_A
	timeout 100 "${run[@]}" "$work/member" roce_lo <"$work/member.in" >"$work/member.out" 2>&1 &
	member=$!
	exec 6>"$work/member.in"
	{ joins 239.1.2.3 && wait_for 5 in_group 239.1.2.3; } || { echo "not joined"; status=1; }
	broker=$(processes verbena-broker 0)
	kill -STOP $broker
	joins 239.1.2.4 || { echo "not joined without a broker"; status=1; }
	in_group 239.1.2.4 && { echo "a stopped broker has joined it"; status=1; }
	kill -9 $broker
	wait_for 30 in_group 239.1.2.4 || { echo "the next broker does not know of the group"; cat /proc/net/igmp; status=1; }
	exec 6>&-
	wait $member || status=1
	cat "$work/member.out"
	return $status
}
check "a group that is joined while root's broker dies is joined by the next" unread

# The kernel counts a socket's groups, also on interfaces that are gone
deleted() {
	local member status=0
	echo 2 >/proc/sys/net/ipv4/igmp_max_memberships
	mkfifo "$work/deleted.in"
	add_pair() { # NAME ADDRESS
		ip link add "$1" type veth peer name "$1p" && ip link set "$1p" up && ip address add "$2/32" dev "$1" && ip link set "$1" up
	}
	add_pair gone0 192.0.2.10 || return 1
	run_as 0
	timeout 100 "${run[@]}" "$work/member" roce_gone0 <"$work/deleted.in" >"$work/member.out" 2>&1 &
	member=$!
	exec 6>"$work/deleted.in"
	{ joins 239.1.3.1 && joins 239.1.3.2; } || { echo "not joined"; status=1; }
	ip link del gone0
	echo gone >&6
	wait_for 20 grep -qx "it is gone" "$work/member.out" || { echo "not told"; status=1; }
	add_pair gone1 192.0.2.11 || status=1
	echo "open roce_gone1" >&6
	{ joins 239.1.3.3 && joins 239.1.3.4; } || { echo "not joined later"; status=1; }
	exec 6>&-
	wait $member || status=1
	ip link del gone1
	echo 20 >/proc/sys/net/ipv4/igmp_max_memberships
	cat "$work/member.out"
	return $status
}
check "groups on an interface that is deleted are left" deleted

sits() { # UID FILE: an idle program; $sitting is its pid
	run_as "$1"
	rm -f "$2"
	VERBENA_LOG=warn timeout 600 "${run[@]}" ibv_asyncwatch -d roce_lo >"$2" 2>&1 </dev/null &
	sitting=$!
	wait_for 20 grep -qs 'async event FD' "$2"
}
start_root() {
	sits 0 "$work/root"
	root=$sitting
}
stop_root() { # also ends its broker, which would stay for other programs
	kill $root
	wait $root 2>/dev/null
	kill -9 $(processes verbena-broker 0) 2>/dev/null
	sleep 3
	! has verbena-broker 0
}

# Served by root's broker: waits for the next one of root
waits_for_roots() {
	local status=0 a
	sits $USER_A "$work/sits" || return 1
	a=$sitting
	stop_root || { echo "root's broker is back without a program of root's"; status=1; }
	has verbena-broker $USER_A && { echo "a broker of its own, which knows other lanes"; status=1; }
	start_root || status=1
	sleep 2
	kill $root # its broker stays if that program is attached to it
	wait $root 2>/dev/null
	sleep 3
	has verbena-broker 0 || { echo "the program has not come to root's new broker"; status=1; }
	start_root || status=1
	grep refused "$work/sits" && status=1
	across 1000000 $USER_A $USER_B "$work/verify" "${D[@]}" -n 1000000 || status=1
	kill $a
	wait $a 2>/dev/null
	return $status
}
check "who came to root's broker waits for it, and starts none" waits_for_roots

# Served by its own user's broker: root's broker, started meanwhile, knows other lanes
starts_its_own() {
	local status=0 a broker
	stop_root || status=1
	sits $USER_A "$work/sits" || return 1
	a=$sitting
	start_root || status=1
	broker=$(processes verbena-broker $USER_A)
	[ -n "$broker" ] || { echo "no broker of its own"; status=1; }
	kill -9 $broker
	wait_for 20 has_other verbena-broker $USER_A "$broker" || { echo "no other broker of its own"; status=1; }
	broker=$(processes verbena-broker $USER_A)
	sleep 3
	[ "$(processes verbena-broker $USER_A)" = "$broker" ] || { echo "the program has not come to it"; status=1; }
	grep refused "$work/sits" && status=1
	kill $a
	wait $a 2>/dev/null
	return $status
}
check "who came to a broker of its own user's starts another, though root's is there" starts_its_own
kill $root
wait $root 2>/dev/null
rm -rf /tmp/verbena-$USER_A /tmp/verbena-$USER_B
finish

#!/bin/bash
# messages.sh - what a user can mend is printed once at the default log level, with what to do
# follows: verbena(7), VERBENA_LOG; docs/troubleshooting.md
# SPDX-License-Identifier: MIT
# usage: messages.sh OVERRUN, with BUILD in the environment
source "$(dirname "${BASH_SOURCE[0]}")/../net/lib.sh"
overrun=$1
need python3 ib_write_bw ibv_ud_pingpong rping
hosts 4300 || { echo "not ok two hosts"; exit 1; }

once() { # FILE PATTERN
	[ "$(grep -cE "$2" "$1")" = 1 ] && return 0
	echo "not once: $2"
	cat "$1"
	return 1
}

no_grh() {
	start_server ibv_rc_pingpong -d $DEV
	start_client ibv_rc_pingpong -d $DEV
	wait $client
	local status=$?
	kill $server 2>/dev/null
	wait $server
	cat "$work/server.out" "$work/client.out" >"$work/both.out" # the server refuses first
	[ $status != 0 ] && once "$work/both.out" 'verbena: roce_net0: an address without a GRH was refused.*VERBENA_LIDS=1'
}
lids() {
	local on_a=("${on_a[@]}" VERBENA_LIDS=1) on_b=("${on_b[@]}" VERBENA_LIDS=1)
	pair ibv_rc_pingpong -d $DEV -n 10 && ! grep -q 'verbena:' "$work/client.out"
}
port_is_free() { ! ip netns exec $1 cat /proc/net/udp /proc/net/udp6 | grep -qi ':12B7 '; }
hold_port() { # HOST COMMAND…, which runs a program there; sets $holder
	wait_for 20 port_is_free $1 || return 1
	rm -f "$work/held"
	"${@:2}" python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", 4791)); open(sys.argv[1], "w").close(); time.sleep(100)' "$work/held" &
	holder=$!
	wait_for 20 test -e "$work/held"
}
port_taken() {
	hold_port $A "${on_a[@]}" || return 1
	start_server ibv_ud_pingpong -d $DEV -g $V4 -n 5
	start_client ibv_ud_pingpong -d $DEV -g $V4 -n 5
	wait_for 30 grep -q 'UDP port 4791' "$work/client.out"
	local status=0
	once "$work/client.out" 'verbena: UDP port 4791 is held by a process of user 0: .*verbena doctor names it' || status=1
	kill $client $server 2>/dev/null
	wait $client $server
	die $holder
	return $status
}
taken='verbena: UDP port 4791 is held by a process of user 0: .*verbena doctor names it'
# The attempt ends before its requests have been repeated for a minute
port_taken_connecting() {
	hold_port $A "${on_a[@]}" || return 1
	local status=0
	timeout $((30 * SLOW)) "${on_a[@]}" "${run[@]}" rping -c -C 5 -a $V4_B -p 7171 >"$work/client.out" 2>&1
	[ $? != 124 ] || { echo "rdma_connect did not fail"; status=1; }
	once "$work/client.out" "$taken" && once "$work/client.out" "UNREACHABLE, error -98" || status=1
	die $holder
	return $status
}
port_taken_listening() {
	hold_port $B "${on_b[@]}" || return 1
	local status=0
	timeout 100 "${on_b[@]}" "${run[@]}" rping -s -C 5 -a $V4_B -p 7171 >"$work/server.out" 2>&1 & server=$!
	wait_for 30 grep -q 'UDP port 4791' "$work/server.out"
	once "$work/server.out" "$taken" || status=1
	kill $server
	wait $server
	die $holder
	return $status
}
packet_too_large() { # the interface shrinks below the path MTU of a running queue pair
	start_server ib_write_bw -d $DEV -x $V4 -D 8 -m 4096 -s 65536 -F
	start_client ib_write_bw -d $DEV -x $V4 -D 8 -m 4096 -s 65536 -F
	wait_for 20 busy
	ip -n $A link set net0 mtu 1500
	wait_for 20 grep -q 'does not take a packet' "$work/client.out"
	local status=0
	once "$work/client.out" 'verbena: the network does not take a packet of [0-9]+ bytes: .*ip link set IF mtu N' || status=1
	kill $client $server 2>/dev/null
	wait $client $server
	ip -n $A link set net0 mtu 4300
	return $status
}
busy() { [ "$(came $B)" -gt 20000000 ]; }
overran() {
	timeout 100 "${on_a[@]}" "${run[@]}" "$overrun" >"$work/overrun.out" 2>&1 || { cat "$work/overrun.out"; return 1; }
	once "$work/overrun.out" 'verbena: a completion queue of [0-9]+ entries has overrun.*poll it sooner'
}

check "an address without a GRH: VERBENA_LIDS=1 is named" no_grh
check "with VERBENA_LIDS=1 the same programs work and say nothing" lids
check "a program that holds UDP port 4791 is named by its user" port_taken
check "where it is held, rdma_connect to another host fails and says so" port_taken_connecting
check "where it is held, rdma_listen says so" port_taken_listening
check "a packet that is larger than the interface's MTU" packet_too_large
check "a completion queue that overruns" overran
finish

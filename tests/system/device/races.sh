#!/bin/bash
# races.sh - interfaces come and go, and with them adapters, while programs list, open and connect
# follows: ibv_get_device_list(3), rdma_resolve_addr(3), ip-link(8)
# SPDX-License-Identifier: MIT
# usage: own-network races.sh RACES CONNECT, with BUILD in the environment; the arguments are races.c's program and connect.c's
source "$(dirname "${BASH_SOURCE[0]}")/../../support/lib.sh"
races=$1 connect=$2
need ip ucmatose ibv_rc_pingpong
if [ "$(id -u)" != 0 ] || [ "$(ip -o link | wc -l)" -gt 3 ]; then # lo, own0, own1
	skip "interfaces that come and go" "not root in a network namespace of its own"
	exit 0
fi
SECONDS_OF_RACE=6
ip link set lo up
shuttle() { # two interfaces with an adapter each, up and with an address, then gone, until $work/stop is there
	until [ -e "$work/stop" ]; do
		ip link add race0 type veth peer name race1 && ip addr add 10.88.0.1/24 dev race0 && ip link set race0 up && ip link set race1 up
		sleep 0.0$((RANDOM % 10))
		ip link del race0
		sleep 0.0$((RANDOM % 5))
		echo >>"$work/times"
	done 2>"$work/shuttle.err"
}
use_all() { timeout -k 2 $((60 * SLOW)) "${run[@]}" "$races" $SECONDS_OF_RACE >"$work/races.out" 2>&1; }
lists() { # the commands that a person gives; each ends, and says what there is
	local n=0
	until [ -e "$work/stop" ]; do
		"$VERBENA" devices | grep -q '^roce_lo ' && timeout 30 "${run[@]}" ibv_devinfo -d roce_lo | grep -q PORT_ACTIVE || return 1
		timeout 30 "${run[@]}" ibv_devinfo -v >"$work/devinfo" 2>&1
		[ $? -lt 124 ] || { cat "$work/devinfo"; return 1; }
		n=$((n + 1))
	done
	[ $n -gt 0 ]
}
# on lo, connections succeed whatever the others do. Not by rping, whose thread asks for events of a channel that its
# main thread has destroyed
connects() {
	local n=0 s c
	until [ -e "$work/stop" ]; do
		timeout 30 "${run[@]}" ucmatose -b 127.0.0.1 -C 2 >"$work/s" 2>&1 </dev/null & s=$!
		wait_for 20 sees_listener
		timeout 30 "${run[@]}" ucmatose -s 127.0.0.1 -C 2 >"$work/c" 2>&1 </dev/null
		c=$?
		wait $s && [ $c = 0 ] || { echo "round $n: client $c"; cat "$work/s" "$work/c"; return 1; }
		n=$((n + 1))
	done
	[ $n -gt 0 ]
}
sees_listener() { "$VERBENA" stat connections 2>/dev/null | grep -q LISTEN; }
# to the address that comes and goes, no program connects; each is told why
gives_up() {
	local n=0 c
	until [ -e "$work/stop" ]; do
		timeout $((30 * SLOW)) "${run[@]}" "$connect" 10.88.0.1 7199 >"$work/refused" 2>&1 </dev/null
		c=$?
		[ $c = 1 ] || { echo "round $n: $c"; cat "$work/refused"; return 1; }
		n=$((n + 1))
	done
	[ $n -gt 0 ]
}
shuttle & shuttling=$!
declare -A racing
for what in lists connects gives_up; do
	(
		trap - EXIT INT TERM
		$what >"$work/$what.said" 2>&1
	) &
	racing[$what]=$!
done
use_all && used=0 || used=$?
touch "$work/stop"
lasted() { cat "$work/races.out"; [ $used = 0 ] && [ "$(wc -l <"$work/times")" -gt 5 ]; }
over() { wait "${racing[$1]}" || { cat "$work/$1.said"; return 1; }; }
check "devices are listed, opened and used by three threads, and no descriptor is lost" lasted
check "the commands that show devices end, and show those that stay" over lists
check "connections over another interface succeed" over connects
check "a connection to an address that goes away is refused, and the program ends" over gives_up
wait $shuttling
finish

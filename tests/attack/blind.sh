#!/bin/bash
# blind.sh - a third host forges a peer's address and guesses the rest: no packet is accepted, and all connections
# survive
# follows: IBA volume 1, 9.7.4.1, 9.8.2.2, 12.9; bridge(8)
# usage: blind.sh; VERBENA_BLIND: number of packets (2,000,000; the long run uses 10,000,000)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../system/net/lib.sh"
C=vb$$c
packets=${VERBENA_BLIND:-2000000}
rate=${VERBENA_BLIND_RATE:-150000}
on_c=(ip netns exec $C)
LIMIT=$((100 + packets / 20000))
attack=$(dirname "$(readlink -f "$0")")

blind_cleanup() {
	local status=$? p
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	if [ -e /run/netns/$C ]; then
		for p in $(ip netns pids $C); do kill -9 "$p" 2>/dev/null; done
		ip netns del $C
	fi
	(exit $status)
	net_cleanup
}
trap blind_cleanup EXIT
trap 'exit 130' INT TERM

# a and b are connected by a bridge on c, which has its own address
three_hosts() {
	local n
	namespaces
	ip netns add $C || return 1
	ip -n $C link add br0 type bridge
	for n in $A $B; do
		ip -n $C link add to$n type veth peer name net0 netns $n || return 1
		ip -n $C link set to$n master br0 up
	done
	ip -n $C link set br0 up
	ip -n $C addr add 192.0.2.3/24 dev br0
	addresses 1500
}

# start NAME COMMAND…: stream on b and on a
start() {
	local name=$1
	shift
	free_port
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" VERBENA_LOG=debug "${run[@]}" "$work/stream" "$@" -p "$port" >"$work/$name.b" 2>"$work/$name.b.log" </dev/null &
	eval "${name}_b=$!"
	wait_for 20 listens "$port" || return 1
	timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" VERBENA_LOG=debug "${run[@]}" "$work/stream" "$@" -p "$port" $V4_B >"$work/$name.a" 2>"$work/$name.a.log" </dev/null &
	eval "${name}_a=$!"
	wait_for 30 grep -qs qpn "$work/$name.a" && wait_for 30 grep -qs qpn "$work/$name.b" && return 0
	cat "$work/$name".?; return 1
}
told() { sed -n "s/^qpn .*$2 \([^ ]*\).*/\1/p; s/^$2 \([^ ]*\).*/\1/p" "$work/$1" | head -1; } # FILE WORD

start_rping() {
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" "${run[@]}" rping -s -a $V4_B -V >"$work/rping.b" 2>&1 </dev/null &
	rping_b=$!
	local end=$((SECONDS + 30 * SLOW))
	while [ $SECONDS -lt $end ]; do # until it listens
		timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" "${run[@]}" rping -c -a $V4_B -V >"$work/rping.a" 2>&1 </dev/null &
		rping_a=$!
		sleep 2
		gone $rping_a || return 0
	done
	cat "$work"/rping.?; return 1
}

# strike NAME PACKETS ARGS…: as a to b, then as b to a, with the known numbers of both
strike() {
	local n=$(($2 / 2)) towards from to status=0 args=()
	for towards in b a; do
		[ $towards = b ] && from=$V4_A to=$V4_B || from=$V4_B to=$V4_A
		args=()
		case $1 in
		nothing) ;;
		lane) args=(-l -q "$(told rc.$towards qpn)" -q "$(told uc.$towards qpn)") ;;
		numbers) args=(-q "$(told rc.$towards qpn)" -q "$(told uc.$towards qpn)" -k "$(told rc.$towards key)" -v "$(told rc.$towards va)") ;;
		messages) args=(-c -q "$(told rc.$towards qpn)") ;;
		esac
		"${on_c[@]}" "$work/blind" -s $from -d $to -n $n -r "$rate" "${args[@]}" || status=1
	done
	alive || status=1
	return $status
}
alive() {
	local p status=0
	for p in rc_a rc_b uc_a uc_b rping_a rping_b; do
		gone "${!p}" && { echo "$p has ended"; tail -n 3 "$work/${p%_*}.${p#*_}"; status=1; }
	done
	grep -l 'DISCONNECT' "$work"/rping.? && status=1
	return $status
}

ends_right() { # NAME
	local a=${1}_a b=${1}_b
	kill -INT "$(program_of "${!a}")"
	wait "${!a}" && wait "${!b}" && grep -q '^right' "$work/$1.b" && return 0
	tail -n 3 "$work/$1".a "$work/$1".b
	return 1
}

counted() { # NAME LEAST TEXT: at least so many
	local n
	n=$(sed -n "s/.*RoCE: .*$3: \([0-9]*\)$/\1/p" "$work/$1.log" | tail -1)
	[ "${n:-0}" -ge "$2" ] && return 0
	echo "$1: $3: ${n:-none}, and not $2"
	grep "RoCE:" "$work/$1.log"
	return 1
}
no_qp() { # NAME LEAST
	local n
	n=$(sed -n 's/.*dropped: \([0-9]*\) no qp.*/\1/p' "$work/$1.log" | tail -1)
	[ "${n:-0}" -ge "$2" ] && return 0
	echo "$1: no qp: ${n:-none}, and not $2"
	return 1
}

check "three hosts" three_hosts
(cd "$attack/../system/net" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/stream" "$attack/stream.c" link.c plan.c -libverbs) || exit 1
cp "${BLIND:-$BUILD/tests/attack/blind}" "$work/blind" || exit 1
check "a reliable connection" start rc -t rc
check "an unreliable connection" start uc -t uc
if command -v rping >/dev/null; then
	check "a connection by rdma_cm" start_rping
else
	rping_a=$$ rping_b=$$
	: >"$work/rping.a"
fi
check "who knows nothing" strike nothing $((packets / 4))
check "who knows the lane" strike lane $((packets / 4))
# with so few requests to one queue pair (7,000), one hits the expected PSN of 2^24 in one of 2,400 runs
check "who knows the queue pairs, and a key" strike numbers 65536
check "who knows the lane, in messages of connection management" strike messages $((packets / 2 - 65536))
[ "$rping_a" = $$ ] || { kill -9 "$(program_of $rping_a)"; check "rping's server learns of the client's end, and of none before" wait_for 60 grep -q DISCONNECT "$work/rping.b"; }
check "what came by the reliable connection is what was sent" ends_right rc
check "what came by the unreliable connection is what was sent" ends_right uc
check "packets for no queue pair are counted" no_qp rc.b 1000
check "requests that are further ahead than what is in flight are counted" counted rc.b 100 "further ahead than a peer has in flight"
check "requests of the past are counted" counted rc.b 100 "duplicate requests"
check "answers to what was never sent are counted" counted rc.a 100 "answers to packets never sent"
check "what is not the peer's is counted" counted uc.b 100 "PSN or source port are not the peer's"
finish

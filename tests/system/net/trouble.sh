#!/bin/bash
# trouble.sh - a bad cable, a cut cable, dying peers: either the data is right, or the right error is reported
# follows: IBA volume 1, 9.7.5 (acknowledgements, retries), 9.9 (errors)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
check "two hosts, and a cable that can be a bad one" bad_hosts
compile_verify || exit 1
verify=("$work/verify" -d $DEV -g $V4)

# --- the cable ---
check "a good cable" on_cable "" crossing 10000000 pair "${verify[@]}" -n 10000000
check "1 % lost" on_cable "loss=1 seed=1" pair "${verify[@]}" -n 4000000
check "5 % lost" on_cable "loss=5 seed=2" pair "${verify[@]}" -n 2000000
check "20 % lost" on_cable "loss=20 seed=3" pair "${verify[@]}" -n 200000 -l 4096
check "5 % late" on_cable "reorder=5 seed=4" pair "${verify[@]}" -n 2000000
check "5 % twice" on_cable "dup=5 seed=5" pair "${verify[@]}" -n 4000000
check "1 % corrupted" on_cable "corrupt=1 seed=6" pair "${verify[@]}" -n 4000000
check "all of it" on_cable "loss=2 dup=2 reorder=2 corrupt=2 seed=7" pair "${verify[@]}" -n 1000000
check "all of it, IPv6" on_cable "loss=2 dup=2 reorder=2 corrupt=2 seed=8" pair "${verify[@]}" -g $V6 -n 1000000
check "all of it, and few receives" on_cable "loss=2 dup=2 reorder=2 corrupt=2 seed=9" pair "${verify[@]}" -r 2 -n 500000
check "all of it, events" on_cable "loss=2 dup=2 reorder=2 corrupt=2 seed=10" pair "${verify[@]}" -e -n 1000000
check "all of it, one read at a time" on_cable "loss=2 dup=2 reorder=2 corrupt=2 seed=11" pair "${verify[@]}" -o 1 -n 500000
for k in read,read-back,write add,swap send,send-imm write,write-imm; do
	check "5 % lost, $k" on_cable "loss=5 dup=2 seed=12" pair "${verify[@]}" -k $k -n $([ $k = add,swap ] && echo 20000 || echo 1000000)
done
check "datagrams: what arrives is right, what is lost is only lost" on_cable "loss=5 seed=13" pair "${verify[@]}" -t ud -n 500000 -L 30
check "datagrams: late, twice, corrupted" on_cable "dup=5 reorder=5 corrupt=1 seed=14" pair "${verify[@]}" -t ud -n 500000 -L 20

# --- Verbena's own faults ---
fault() { # SETTINGS COMMAND…
	VERBENA_FAULT=$1 "${@:2}"
}
check "VERBENA_FAULT: loss" fault loss=1,seed=7 pair "${verify[@]}" -n 2000000
check "VERBENA_FAULT: all" fault loss=1,dup=5,reorder=5,corrupt=1,seed=7 pair "${verify[@]}" -n 2000000
check "VERBENA_FAULT: all, UD" fault loss=1,dup=5,reorder=5,corrupt=1,seed=7 pair "${verify[@]}" -t ud -n 500000 -L 30

# --- errors ---
# ends STATUS TEXT WHO…: each of them (server, client) ended with STATUS and TEXT
ends() {
	local status=$1 text=$2 who s
	for who in "${@:3}"; do
		wait "${!who}"
		s=$?
		[ $s = "$status" ] && grep -q "$text" "$work/$who.out" && continue
		echo "$who ended with $s"
		said_by_both
		return 1
	done
}
spent="transport retry counter exceeded"
endless=("${verify[@]}" -n 100000000000 -S 100)
LIMIT=110

# running: starts an endless pair, and waits until data flows
running() {
	start_server "${endless[@]}" "$@" && start_client "${endless[@]}" "$@" || { said_by_both; return 1; }
	local at
	at=$(($(came $B) + 1000000))
	flows() { gone "$client" || [ "$(came $B)" -ge $at ]; }
	wait_for 30 flows && ! gone "$client" && return 0
	said_by_both
	return 1
}
stop_both() { kill "$client" "$server" 2>/dev/null; wait "$client" "$server"; }

spent_by_loss() {
	VERBENA_FAULT=loss=100 start_server "${endless[@]}" -T 10 -R 2 -q 3 && VERBENA_FAULT=loss=100 start_client "${endless[@]}" -T 10 -R 2 -q 3 || return 1
	ends 3 "$spent" server client
}
check "VERBENA_FAULT: when all is lost, both learn that their retries are spent" spent_by_loss

dies() { # WHO SURVIVES: the other is killed
	local dead=client
	[ "$1" = client ] && dead=server
	running -T 18 -R 4 || { stop_both; return 1; }
	kill -9 "$(program_of "${!dead}")"
	ends 3 "$spent" "$1"
	local status=$?
	stop_both
	return $status
}
check "the client is killed: the server learns of it" dies server
check "the server is killed: the client learns of it" dies client
check "a pair after that" pair "${verify[@]}" -n 1000000

# By rdma_cm: the survivor is told by the broker of the killed program's host, which repeats that at least five times,
# although every seventh datagram is lost
disconnects() { # WHO SURVIVES: rping's other end is killed
	local survivor=$1 dead=client status=0 end=$((SECONDS + 30 * SLOW))
	[ "$1" = client ] && dead=server
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" "${run[@]}" rping -s -a $V4_B -v >"$work/server.out" 2>&1 </dev/null &
	server=$!
	while :; do # until it listens
		: >"$work/client.out"
		timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" "${run[@]}" rping -c -a $V4_B -v >"$work/client.out" 2>&1 </dev/null &
		client=$!
		wait_for 20 connected_or_gone
		gone "$client" && ! gone "$server" && [ $SECONDS -lt $end ] || break
		sleep 0.3
	done
	cable loss=15 seed=9 || return 1
	kill -9 "$(program_of "${!dead}")"
	wait_for 60 gone "${!survivor}" || status=1
	cable
	stop_both
	grep -q 'DISCONNECT EVENT' "$work/$survivor.out" || status=1
	[ $status = 0 ] || { tail -3 "$work/$survivor.out"; echo "$survivor knows nothing of it"; }
	return $status
}
connected_or_gone() { gone "$client" || grep -q 'ping data' "$work/client.out"; }
if command -v rping >/dev/null; then
	for i in 1 2 3; do
		check "rping's client is killed: the server is disconnected ($i)" disconnects server
		check "rping's server is killed: the client is disconnected ($i)" disconnects client
	done
else
	skip "killed programs of rdma_cm" "rping is not installed"
fi

cut_for_good() {
	running -T 18 -R 4 -q 3 || { stop_both; return 1; }
	cable cut=1
	ends 3 "$spent" server client
	local status=$?
	cable
	stop_both
	return $status
}
check "the cable is cut: both learn that their retries are spent" cut_for_good
check "a pair after that" pair "${verify[@]}" -n 1000000

# survives COMMAND COMMAND: 1.5 seconds between the two commands; data flows again, and is correct
survives() {
	running -T 19 -R 7 || { stop_both; return 1; }
	$1 || return 1
	sleep 1.5
	$2 || return 1
	local at
	at=$(($(came $B) + 2000000))
	flows() { gone "$client" || gone "$server" || [ "$(came $B)" -ge $at ]; }
	if wait_for 40 flows && ! gone "$client" && ! gone "$server"; then
		stop_both
		return 0
	fi
	said_by_both
	stop_both
	return 1
}
check "the cable is cut and mended" survives "cable cut=1" "cable"
check "a pair after that" pair "${verify[@]}" -n 1000000
finish

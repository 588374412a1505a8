#!/bin/bash
# broker.sh - brokers are killed under load, on both hosts: connections continue, and new ones find a new broker
# follows: verbena-broker(8)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
check "two hosts" hosts
compile_verify || exit 1

# the broker of one host
broker_of() { # SIDE
	local p
	for p in $(pgrep -x verbena-broker); do
		{ tr '\0' '\n' <"/proc/$p/environ"; } 2>/dev/null | grep -qx "VERBENA_RUNTIME=$work/$1" && echo "$p"
	done
}
has_broker() { [ -n "$(broker_of "$1")" ]; }

# killed SIDES TIMES BYTES VERIFY-ARGS…: the transfer is correct. If it ended too early, it is repeated with more data
killed() {
	local sides=$1 times=$2 bytes=$3 status _
	shift 3
	for _ in 1 2 3 4; do
		killed_once "$sides" "$times" -n "$bytes" "$@"
		status=$?
		[ $status = 2 ] || return $status
		bytes=$((bytes * 3))
	done
	return 1
}
killed_once() { # 2: it had ended before
	local sides=$1 times=$2 s i p
	shift 2
	start_server "$work/verify" -d $DEV -g $V4 -S 100 "$@" || { said_by_both; return 1; }
	start_client "$work/verify" -d $DEV -g $V4 -S 100 "$@"
	for ((i = 0; i < times; i++)); do
		sleep 0.4
		for s in $sides; do
			for p in $(broker_of "$s"); do kill -9 "$p"; done
		done
		gone "$client" && { over_before $((i + 1)); return; }
	done
	local at
	at=$(came $B)
	wait "$client"
	local c=$?
	wait "$server"
	local s=$?
	[ $c = 0 ] && [ $s = 0 ] && [ "$(came $B)" -gt "$at" ] && return 0
	echo "server ended with $s, client with $c; $(($(came $B) - at)) bytes since the last kill"
	[ $c = 0 ] && [ $s = 0 ] && return 2
	said_by_both
	return 1
}
over_before() { # TIMES
	local c s
	wait "$client"
	c=$?
	wait "$server"
	s=$?
	echo "server ended with $s, client with $c, before it was killed $1 times"
	said_by_both
	[ $c = 0 ] && [ $s = 0 ] && return 2
	return 1
}
LIMIT=120
check "killed on the client's host" killed a 2 400000000
check "killed on the server's host" killed b 2 400000000
check "killed on both, again and again" killed "a b" 4 600000000
check "UD goes on too" killed "a b" 2 40000000 -t ud -L 20

# a pair that starts when the old broker is dead and others still run
later() {
	local one two status=0
	start_server "$work/verify" -d $DEV -g $V4 -S 100 -n 400000000 || return 1
	one=$server
	start_client "$work/verify" -d $DEV -g $V4 -S 100 -n 400000000
	two=$client
	sleep 0.4
	for p in $(broker_of a) $(broker_of b); do kill -9 "$p"; done
	mv "$work/server.out" "$work/first.out"
	pair ibv_rc_pingpong -d $DEV -g $V4 -n 100 -c || status=1
	wait "$two" || status=1
	wait "$one" || status=1
	[ $status = 0 ] || cat "$work/first.out"
	return $status
}
check "a pair that comes later works beside the old one" later

# on a busy machine the broker may answer after seconds: a queue pair that waits for its path still finds it
sleepy() { # SECONDS
	local p status=0
	start_server "$work/verify" -d $DEV -g $V4 -S 100 -n 4000000 || { said_by_both; return 1; }
	p=$(broker_of b)
	[ -n "$p" ] || { echo "no broker"; return 1; }
	kill -STOP $p
	(sleep "$1"; kill -CONT $p) &
	start_client "$work/verify" -d $DEV -g $V4 -S 100 -n 4000000
	wait "$client" || status=1
	wait "$server" || status=1
	[ $status = 0 ] || said_by_both
	return $status
}
check "a broker that answers late is waited for" sleepy 3
check "a broker that answers when nobody waits for it any more is heard all the same" sleepy 13

# if it answers later than a datagram waits, the datagram goes by the network, where its queue pair has always been
asleep() {
	local p status=0 sender receiver from to
	mkfifo "$work/a.in" "$work/b.in"
	rm -f "$work/server.out" "$work/client.out"
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" "${run[@]}" "$work/late" $DEV $V4 <"$work/b.in" >"$work/server.out" 2>&1 &
	receiver=$!
	timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" "${run[@]}" "$work/late" $DEV $V4 <"$work/a.in" >"$work/client.out" 2>&1 &
	sender=$!
	exec 6>"$work/b.in" 7>"$work/a.in"
	wait_for 20 test -s "$work/server.out" && wait_for 20 test -s "$work/client.out" || status=1
	p=$(broker_of a)
	kill -STOP $p || status=1
	echo receive >&6
	echo "send $(head -1 "$work/server.out")" >&7
	wait $receiver || status=1
	kill -CONT $p
	wait $sender || status=1
	exec 6>&- 7>&-
	[ $status = 0 ] || said_by_both
	return $status
}
check "late.c compiles" compile late late.c -libverbs
LIMIT=30 check "a broker that does not answer loses no datagram" asleep

# a program dies whose connection the new broker knows only from the program itself; no outstanding request could fail
told() { # WHO SURVIVES
	local dead=client p status=0
	[ "$1" = client ] && dead=server
	: >"$work/client.out" >"$work/server.out" # not the output of the one before
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" VERBENA_LOG=debug "${run[@]}" "$work/told" $V4_B 7471 >"$work/server.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 grep -qx listening "$work/server.out" || status=1
	timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" VERBENA_LOG=debug "${run[@]}" "$work/told" $V4_B 7471 client >"$work/client.out" 2>&1 </dev/null &
	client=$!
	wait_for 20 grep -qx connected "$work/client.out" && wait_for 20 grep -qx connected "$work/server.out" || status=1
	for p in $(broker_of a) $(broker_of b); do kill -9 "$p"; done
	wait_for 20 new_broker_knows "$work/client.out" && wait_for 20 new_broker_knows "$work/server.out" || status=1
	kill -9 "$(program_of "${!dead}")"
	wait_for 60 grep -qx RDMA_CM_EVENT_DISCONNECTED "$work/$1.out" || status=1
	kill "$client" "$server" 2>/dev/null
	wait "$client" "$server"
	grep -q 'cm: gets DREQ from .*: ESTABLISHED$' "$work/$1.out" && grep -q 'cm: event RDMA_CM_EVENT_DISCONNECTED, ' "$work/$1.out" || status=1
	[ $status = 0 ] || said_by_both
	return $status
}
new_broker_knows() { grep -q 'a broker that is new has been told' "$1"; }
check "told.c compiles" compile told told.c -lrdmacm -libverbs
LIMIT=100
check "brokers killed, the client dies later: the server is disconnected" told server
check "brokers killed, the server dies later: the client is disconnected" told client

# another program holds the port when two connect: they find their path when the port is free
held() { # SIDES VERIFY-ARGS…: the sides where it holds the port
	local sides=$1 s holders=() status=0
	local -x VERBENA_LOG=warn # a program without the port says so
	shift
	rm -f "$work/server.out" "$work/client.out"
	for s in $sides; do
		rm -f "$work/holder.$s"
		ip netns exec "vb$$$s" python3 "$HERE/holder.py" >"$work/holder.$s" 2>&1 &
		holders+=($!)
	done
	for s in $sides; do
		wait_for 70 test -s "$work/holder.$s"
		grep -q held "$work/holder.$s" || { cat "$work/holder.$s"; kill "${holders[@]}"; return 1; }
	done
	start_server "$work/verify" -d $DEV -g $V4 -S 100 -T 21 "$@" || status=1
	start_client "$work/verify" -d $DEV -g $V4 -S 100 -T 21 "$@"
	wait_for 30 wayless || { echo "nobody says that port 4791 is held"; status=1; }
	sleep 3
	kill "${holders[@]}"
	wait "${holders[@]}" 2>/dev/null
	wait "$client" || status=1
	wait "$server" || status=1
	[ $status = 0 ] || said_by_both
	return $status
}
wayless() { { [[ $sides != *a* ]] || grep -q 4791 "$work/client.out"; } && { [[ $sides != *b* ]] || grep -q 4791 "$work/server.out"; }; }
check "the port is another's for a while: on the client's host" held a -n 4000000
check "the port is another's for a while: on the server's host" held b -n 4000000
check "the port is another's for a while: on both" held "a b" -n 4000000
check "the port is another's for a while: datagrams" held "a b" -t ud -n 40000000 -L 50
finish

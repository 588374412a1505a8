#!/bin/bash
# iwarp_trouble.sh - broken iWARP connections: events and completions at both ends
# follows: RFC 5040, 6 and 7; RFC 5044, 7.4; rdma_cm(7)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/../../support/cm.sh"
need python3 rping
export VERBENA_DEVICES=iwarp:net0
check "two hosts" hosts
compile rdmap ../../interop/rdmap.c -lrdmacm -libverbs || exit 1
LIMIT=120

# --- no peer ---
refused() { # ADDRESS: fails at once, with an error of iWARP
	"${on_a[@]}" timeout 60 "${run[@]}" "$work/rdmap" -c "$1" >"$work/client.out" 2>&1 && return 1
	grep -q 'RDMA_CM_EVENT_REJECTED, error -111' "$work/client.out" && return 0
	cat "$work/client.out"
	return 1
}
check "nobody listens: rejected, connection refused" refused $V4_B
check "nobody listens, IPv6: rejected, connection refused" refused $V6_B
closes() { # a program without RDMA that closes the connection
	timeout 60 "${on_b[@]}" python3 -c 'if True:
		import socket
		l = socket.create_server(("'$V4_B'", 7471))
		while True:
		    c, _ = l.accept()
		    c.recv(1000)
		    c.close()' &
	server=$!
	wait_for 20 listens 7471
	"${on_a[@]}" timeout 60 "${run[@]}" "$work/rdmap" -c $V4_B >"$work/client.out" 2>&1
	kill $server
	wait $server
	grep -q 'RDMA_CM_EVENT_REJECTED, error -104' "$work/client.out" || { cat "$work/client.out"; return 1; }
}
check "the peer closes in place of an answer: rejected, connection reset" closes

# --- in progress ---
# Both ends, each with the prefix $with; through between.py if $between is set
with=() between=
start_pair() {
	local port=7471
	[ -z "$between" ] || port=7472
	: >"$work/client.out" # output of an earlier one
	"${on_b[@]}" timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "${with[@]}" "$work/rdmap" -s $V4_B -f >"$work/server.out" 2>&1 &
	server=$!
	wait_for 20 listens 7471 || return 1
	if [ -n "$between" ]; then
		"${on_b[@]}" timeout $((LIMIT * SLOW)) python3 "$HERE/between.py" 7472 $V4_B 7471 $between &
		wait_for 20 listens 7472 || return 1
	fi
	"${on_a[@]}" timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "${with[@]}" "$work/rdmap" -c $V4_B -p $port -l 60000 -f >"$work/client.out" 2>&1 &
	client=$!
	wait_for 30 grep -q 'under way' "$work/client.out" || { said_by_both; return 1; }
}
# said_end WHO REQUEST…: the oldest request ended with one of these, the rest was flushed, and the event arrived
said_end() {
	local out=$work/$1.out r
	grep -q '^event: RDMA_CM_EVENT_DISCONNECTED, 0' "$out" && grep -q '^flushed: [56] receives' "$out" &&
		for r in "${@:2}"; do grep -q "^ended: $r\$" "$out" && return 0; done
	said_by_both
	return 1
}
flushed="Work Request Flushed Error"

dies() { # WHO is killed, and the survivor
	start_pair || return 1
	sleep 0.5
	kill -9 "$(program_of "${!1}")"
	wait "${!2}" || { said_by_both; return 1; }
	wait "${!1}"
	said_end $2 "request: $flushed" "receive: $flushed"
}
check "the server is killed: the client's requests are flushed, it is disconnected" dies server client
check "the client is killed: the server's receives are flushed, it is disconnected" dies client server

cut() { # BYTES HOW
	between="$1 $2"
	start_pair || return 1
	between=
	wait "$client" && wait "$server" || { said_by_both; return 1; }
	said_end client "request: $flushed" "receive: $flushed" && said_end server "receive: $flushed"
}
for how in reset close; do
	check "$how in the middle of a write: both are disconnected" cut 1230000 $how
	check "$how in the middle of an answer to a read: both are disconnected" cut -1230000 $how
	check "$how in the middle of a header: both are disconnected" cut 126 $how
done

# --- half open: the cable is cut, and neither end announces it ---
"${CC:-gcc}" -shared -fPIC -O2 -w -o "$work/impatient.so" "$HERE/impatient.c" || exit 1
falls_silent() {
	start_pair || return 1
	ip -n $A link set net0 down
	wait "$client" && wait "$server"
	local status=$?
	ip -n $A link set net0 up
	[ $status = 0 ] || { said_by_both; return 1; }
	said_end client "request: $flushed" "receive: $flushed" && said_end server "receive: $flushed"
}
with=(env "LD_PRELOAD=$work/impatient.so${LD_PRELOAD:+:$LD_PRELOAD}")
sanitized || check "the cable is cut: both find out by themselves" falls_silent
finish

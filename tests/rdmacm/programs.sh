#!/bin/bash
# programs.sh - programs of rdma_cm, as Debian ships them and our examples, against each other
# follows: rping(1), ucmatose(1), udaddy(1), mckey(1), cmtime(1), rdma_client(1), rdma_xserver(1); examples/
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../lib.sh"

# both SERVER -- CLIENT: each with its arguments; the client is tried again until the server listens
both() {
	local server=() client s c
	while [ "$1" != -- ]; do server+=("$1"); shift; done
	shift
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "${server[@]}" >"$work/server.out" 2>&1 </dev/null &
	s=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.3
		timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "$@" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		# 8: nobody listens yet
		grep -q "REJECTED, error:\{0,1\} 8\|UNREACHABLE, error:\{0,1\} 1\|onnection refused" "$work/client.out" || break
	done
	[ $c = 0 ] || kill $s
	wait $s
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server ended with $s, client with $c"
	said_by_both
	return 1
}

# its server goes on for ever
cmtime_pair() {
	local s c
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" cmtime -b 127.0.0.1 >"$work/server.out" 2>&1 </dev/null &
	s=$!
	sleep 0.5
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" cmtime -s 127.0.0.1 -c "$1" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
	kill $s
	wait $s
	[ $c = 0 ] && ! grep "event:" "$work/client.out" && return 0
	said_by_both
	return 1
}

if command -v rping >/dev/null; then
	for a in 127.0.0.1 ::1; do
		check "rping at $a" both rping -s -a $a -C 20 -V -- rping -c -a $a -C 20 -V
		check "rping at $a, all addresses" both rping -s -a :: -C 5 -- rping -c -a $a -C 5
	done
	check "rping: 64 KiB" both rping -s -a 127.0.0.1 -C 20 -S 65535 -- rping -c -a 127.0.0.1 -C 20 -S 65535
	check "ucmatose: 20 connections" both ucmatose -c 20 -C 10 -- ucmatose -s 127.0.0.1 -c 20 -C 10
	check "ucmatose: ids that move" both ucmatose -c 4 -C 5 -m -- ucmatose -s 127.0.0.1 -c 4 -C 5 -m
	check "udaddy: 5 datagram ids" both udaddy -c 5 -C 10 -- udaddy -s 127.0.0.1 -c 5 -C 10
	check "mckey: a group" both mckey -m 239.9.8.7 -b 127.0.0.1 -C 1 -- mckey -s -m 239.9.8.7 -b 127.0.0.1 -C 1
	check "rdma_server and rdma_client" both rdma_server -- rdma_client
	check "rdma_xserver and rdma_xclient" both rdma_xserver -c r -- rdma_xclient -s 127.0.0.1 -c r
	check "ucmatose: 200 connections" both ucmatose -c 200 -C 2 -- ucmatose -s 127.0.0.1 -c 200 -C 2
	check "udaddy: 100 datagram ids" both udaddy -c 100 -C 2 -- udaddy -s 127.0.0.1 -c 100 -C 2
	check "cmtime: 1000 connections" cmtime_pair 1000
else
	skip "rdma-core's programs" "rdmacm-utils is not installed"
fi

if pkg-config --exists libibverbs librdmacm; then
	make -s -C "$ROOT/examples" OUT="$work" all
	for e in first echo datagram; do
		for a in 127.0.0.1 ::1; do
			check "examples: $e at $a" both "$work/$e" server -- "$work/$e" client $a
		done
	done
else
	skip "examples" "pkg-config knows no libibverbs and librdmacm"
fi
finish

#!/bin/bash
# rdmacm.sh - programs of rdma_cm on one host: Debian's, perftest -R, our examples, rdma-core's tests of it
# follows: rping(1), ucmatose(1), udaddy(1), mckey(1), cmtime(1), rdma_client(1), rdma_xclient(1), rcopy(1), rstream(1), perftest(1)
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../lib.sh"
need rping ib_send_lat
LIMIT=20

# Nobody listens there yet
early='REJECTED[,;] error:\{0,1\} 8\|UNREACHABLE[,;] error:\{0,1\} 1\|onnection refused\|CM event bl blka 8'
# both SERVER… -- CLIENT…: both end well; the client is tried again until the server listens
both() {
	local server_args=() s c
	while [ "$1" != -- ]; do server_args+=("$1"); shift; done
	shift
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "${server_args[@]}" >"$work/server.out" 2>&1 </dev/null &
	s=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.2
		timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "$@" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		[ $c != 0 ] && grep -q "$early" "$work/client.out" && ! gone $s || break
	done
	[ $c = 0 ] && [ -z "$endless" ] || wait_for 3 gone $s || kill $s
	wait $s
	s=$?
	[ -z "$endless" ] || s=0
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server ended with $s, client with $c: $*"
	said_by_both
	return 1
}
endless= # the server has no end of its own
copies() {
	head -c 3000000 /dev/urandom >"$work/big"
	rm -f "$work/copy"
	endless=1
	both rcopy -- rcopy "$work/big" "127.0.0.1:$work/copy"
	local status=$?
	endless=
	[ $status = 0 ] && cmp "$work/big" "$work/copy"
}

# an address of an adapter other than the loopback's, where there is one
other=$(ip -o -4 addr show scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
for a in 127.0.0.1 ::1 $other; do
	[ $a != ::1 ] ||
	check "rping at $a" both rping -s -a $a -C 20 -V -- rping -c -a $a -C 20 -V
	check "rping at $a, 65535 bytes" both rping -s -a $a -C 10 -V -S 65535 -- rping -c -a $a -C 10 -V -S 65535
	check "rping at $a, all addresses" both rping -s -a :: -C 5 -- rping -c -a $a -C 5
	check "ucmatose at $a: 20 connections" both ucmatose -b $a -c 20 -C 10 -- ucmatose -s $a -c 20 -C 10
	check "udaddy at $a: 5 datagram ids" both udaddy -b $a -c 5 -C 10 -- udaddy -s $a -c 5 -C 10
	check "rdma_server and rdma_client at $a" both rdma_server -s $a -- rdma_client -s $a
	check "rdma_xserver and rdma_xclient at $a, RC" both rdma_xserver -c r -- rdma_xclient -c r -s $a
	check "cmtime at $a: 20 connections" both cmtime -b $a -c 20 -- cmtime -s $a -c 20
	check "rstream at $a" both rstream -b $a -T v -S 65536 -C 5 -I 2 -- rstream -s $a -T v -S 65536 -C 5 -I 2
	# this perftest looks names up as IPv4's only
	[ $a != ::1 ] || continue
	for p in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat ib_atomic_bw ib_atomic_lat; do
		check "$p -R at $a" both $p -R -F -n 100 -- $p -R -F -n 100 $a
	done
	check "ib_send_bw -R -c UD at $a" both ib_send_bw -R -F -c UD -s 1024 -n 100 -- ib_send_bw -R -F -c UD -s 1024 -n 100 $a
done
check "ucmatose: ids that move" both ucmatose -c 4 -C 5 -m -- ucmatose -s 127.0.0.1 -c 4 -C 5 -m
check "ib_send_lat -R -c UD" both ib_send_lat -R -F -c UD -s 1024 -n 100 -- ib_send_lat -R -F -c UD -s 1024 -n 100 127.0.0.1
for p in ib_send_bw ib_write_bw; do
	check "$p -R -c UC" both $p -R -F -c UC -n 50 -t 16 -- $p -R -F -c UC -n 50 -t 16 127.0.0.1
	check "$p -R -q 8: many connections" both $p -R -F -q 8 -s 4096 -n 50 -- $p -R -F -q 8 -s 4096 -n 50 127.0.0.1
done
check "ib_send_bw -R -z: what the client says about itself" both ib_send_bw -R -z -F -n 50 -- ib_send_bw -R -z -F -n 50 127.0.0.1
check "mckey: a group" both mckey -m 239.9.8.7 -b 127.0.0.1 -C 5 -- mckey -s -m 239.9.8.7 -b 127.0.0.1 -C 5
check "rcopy" copies

if pkg-config --exists libibverbs librdmacm; then
	make -s -C "$ROOT/examples" OUT="$work" all
	for e in first echo datagram; do
		for a in 127.0.0.1 ::1; do check "examples: $e at $a" both "$work/$e" server -- "$work/$e" client $a; done
	done
else
	skip "examples" "pkg-config knows no libibverbs and librdmacm"
fi
check "the broker goes when its programs have gone" broker_gone

# rdma-core's own; a script of its own, with lines of its own
"$HERE/pyverbs.sh" rdmacm || failed=$((failed + 1))
finish

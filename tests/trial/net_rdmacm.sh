#!/bin/bash
# rdmacm.sh - programs of rdma_cm from one host to another
# follows: rping(1), ucmatose(1), udaddy(1), mckey(1), cmtime(1), rdma_client(1), rdma_xclient(1), rcopy(1), rstream(1), perftest(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../net/lib.sh"
need rping ib_send_lat
check "two hosts" hosts
LIMIT=20

# Nobody listens there yet
early='REJECTED[,;] error:\{0,1\} 8\|UNREACHABLE[,;] error:\{0,1\} 1\|onnection refused\|CM event bl blka 8'
# both BYTES SERVER… -- CLIENT…: both end well, and at least so many bytes cross; the server's address in the client's arguments is @
both() {
	local server_args=() s c a b crossed least=$1
	shift
	while [ "$1" != -- ]; do server_args+=("$1"); shift; done
	shift
	a=$(came $A) b=$(came $B)
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" "${run[@]}" "${server_args[@]}" >"$work/server.out" 2>&1 </dev/null &
	s=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.2
		timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" "${run[@]}" "${@//@/$there}" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		[ $c != 0 ] && grep -q "$early" "$work/client.out" && ! gone $s || break
	done
	[ $c = 0 ] && [ -z "$endless" ] || wait_for 3 gone $s || kill $s
	wait $s
	s=$?
	[ -z "$endless" ] || s=0
	crossed=$(($(came $A) - a + $(came $B) - b))
	[ $s = 0 ] && [ $c = 0 ] && [ $crossed -ge "$least" ] && return 0
	echo "server ended with $s, client with $c, $crossed bytes of $least crossed: $*"
	said_by_both
	return 1
}
endless= # the server has no end of its own
copies() {
	head -c 3000000 /dev/urandom >"$work/big"
	rm -f "$work/copy"
	endless=1
	both 3000000 rcopy -- rcopy "$work/big" "@:$work/copy"
	local status=$?
	endless=
	[ $status = 0 ] && cmp "$work/big" "$work/copy"
}

for f in IPv4 IPv6; do
	case $f in
	IPv4) here=$V4_A there=$V4_B any=0.0.0.0 ;;
	IPv6) here=$V6_A there=$V6_B any=:: ;;
	esac
	check "rping, $f" both 2000 rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
	check "rping, any address, $f" both 2000 rping -s -a $any -C 5 -V -- rping -c -a @ -C 5 -V
	check "rping, 60000 bytes, $f" both 1000000 rping -s -a $there -C 10 -S 60000 -- rping -c -a @ -C 10 -S 60000
	check "ucmatose, 20 connections, $f" both 20000 ucmatose -b $any -c 20 -C 10 -- ucmatose -s @ -c 20 -C 10
	check "udaddy, 5 datagram ids, $f" both 5000 udaddy -b $there -c 5 -C 10 -- udaddy -s @ -b $here -c 5 -C 10
	check "rdma_server and rdma_client, $f" both 500 rdma_server -s $there -- rdma_client -s @
	check "rdma_xserver and rdma_xclient, RC, $f" both 500 rdma_xserver -c r -- rdma_xclient -c r -s @
	check "cmtime, 20 connections, $f" both 10000 cmtime -b $there -c 20 -- cmtime -s @ -c 20
	for t in a b n; do
		check "rstream -T $t, $f" both 300000 rstream -b $there -T v -T $t -S 65536 -C 5 -I 2 -- rstream -s @ -T v -T $t -S 65536 -C 5 -I 2
	done
	# rcopy takes what stands before the first colon for the address
	[ $f = IPv6 ] || check "rcopy" copies
	group=239.9.8.7
	[ $f = IPv4 ] || group=ff0e::9:8:7
	check "mckey, $f" both 500 mckey -m $group -b $there -C 5 -- mckey -s -m $group -b $here -C 5
done
# this perftest looks names up as IPv4's only
here=$V4_A there=$V4_B
for p in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat ib_atomic_bw ib_atomic_lat; do
	check "$p -R" both 4000 $p -R -F -n 50 -- $p -R -F -n 50 @
done
for p in ib_send_bw ib_send_lat; do
	check "$p -R -c UD" both 4000 $p -R -F -c UD -s 1024 -n 50 -- $p -R -F -c UD -s 1024 -n 50 @
done
check "ib_send_bw -R -q 8" both 1000000 ib_send_bw -R -F -q 8 -s 4096 -n 50 -- ib_send_bw -R -F -q 8 -s 4096 -n 50 @
finish

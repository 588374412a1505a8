#!/bin/bash
# rdmacm.sh - programs of rdma_cm on one host: rdma-core's, perftest -R, our examples
# follows: rping(1), ucmatose(1), udaddy(1), mckey(1), cmtime(1), rdma_client(1), rdma_xclient(1), rcopy(1), rstream(1), perftest(1)
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/../../support/cm.sh"
need rping ib_send_lat

addresses=(127.0.0.1)
[ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6 && addresses+=(::1)
for there in "${addresses[@]}"; do
	check "rping at $there" both rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
	check "rping at $there, 65535 bytes" both rping -s -a $there -C 10 -V -S 65535 -- rping -c -a @ -C 10 -V -S 65535
	check "rping at $there, all addresses" both rping -s -a :: -C 5 -- rping -c -a @ -C 5
	check "ucmatose at $there: 20 connections" both ucmatose -b $there -c 20 -C 10 -- ucmatose -s @ -c 20 -C 10
	check "udaddy at $there: 5 datagram ids" both udaddy -b $there -c 5 -C 10 -- udaddy -s @ -c 5 -C 10
	check "rdma_server and rdma_client at $there" both rdma_server -s $there -- rdma_client -s @
	check "cmtime at $there: 20 connections" cmtimes $there 20
	check "rstream at $there" both rstream -b $there -T v -S 65536 -C 5 -I 2 -- rstream -s @ -T v -S 65536 -C 5 -I 2
done
there=127.0.0.1
# its server takes the first address from getaddrinfo(3), which is IPv4
check "rdma_xserver and rdma_xclient" both rdma_xserver -c r -- rdma_xclient -c r -s @
check "rdma_xserver and rdma_xclient, XRC" both rdma_xserver -c x -- rdma_xclient -c x -s @
# this perftest resolves names to IPv4 addresses only
for p in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat ib_atomic_bw ib_atomic_lat; do
	check "$p -R" both $p -R -F -n 100 -- $p -R -F -n 100 @
done
for p in ib_send_bw ib_send_lat; do
	check "$p -R -c UD" both $p -R -F -c UD -s 1024 -n 100 -- $p -R -F -c UD -s 1024 -n 100 @
done
for p in ib_send_bw ib_write_bw; do
	check "$p -R -q 8: many connections" both $p -R -F -q 8 -s 4096 -n 50 -- $p -R -F -q 8 -s 4096 -n 50 @
done
# it calls ibv_modify_qp, and no function about GIDs: node/lids_only.c
no_lids() {
	VERBENA_LOG=info both rping -s -a $there -C 2 -- rping -c -a @ -C 2 || return 1
	! grep 'asks for no GID' "$work"/{server,client}.out
}
check "rping's adapters have no LIDs" no_lids
check "ib_send_bw -R -z: what the client says about itself" both ib_send_bw -R -z -F -n 50 -- ib_send_bw -R -z -F -n 50 @
check "ucmatose: ids that move" both ucmatose -c 4 -C 5 -m -- ucmatose -s @ -c 4 -C 5 -m
check "ucmatose: 200 connections" both ucmatose -c 200 -C 2 -- ucmatose -s @ -c 200 -C 2
check "udaddy: 100 datagram ids" both udaddy -c 100 -C 2 -- udaddy -s @ -c 100 -C 2
check "cmtime: 1000 connections" cmtimes 127.0.0.1 1000
check "mckey: a group" group 239.9.8.7 127.0.0.1 127.0.0.1
sends_only() {
	local ready=(joined 239.9.8.6)
	both mckey -m 239.9.8.6 -b $there -C 5 -c 3 -- mckey -s -o -m 239.9.8.6 -b $there -C 5 -c 3
}
check "mckey: three members, three that only send" sends_only
check "rping: a server for many" served rping -s -P -a $there -- rping -c -a @ -C 200 -S 100 -V
check "ucmatose: 100 messages of 6000 bytes on each of 50 connections, a type of service" both ucmatose -c 50 -C 100 -S 6000 -t 8 -- ucmatose -s @ -c 50 -C 100 -S 6000 -t 8
check "udaddy: datagrams of 4096 bytes" both udaddy -c 3 -S 4096 -t 4 -- udaddy -s @ -c 3 -S 4096 -t 4
check "udaddy: the port space of IPoIB" both udaddy -p 0x0002 -- udaddy -s @ -p 0x0002
check "rcopy" copies

if pkg-config --exists libibverbs librdmacm; then
	make -s -C "$ROOT/examples" OUT="$work" all
	for e in first echo datagram; do
		for there in "${addresses[@]}"; do check "examples: $e at $there" both "$work/$e" server -- "$work/$e" client @; done
	done
else
	skip "examples" "pkg-config knows no libibverbs and librdmacm"
fi
finish

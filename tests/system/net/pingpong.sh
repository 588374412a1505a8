#!/bin/bash
# pingpong.sh - rdma-core's example programs, as Debian ships them, from one host to another
# follows: ibv_rc_pingpong(1), ibv_uc_pingpong(1), ibv_ud_pingpong(1), ibv_srq_pingpong(1), ibv_xsrq_pingpong(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
check "two hosts" hosts
AGAIN=1 # these programs give up after half a second without an answer, and a busy machine may need longer

# ping PROGRAM SIZE COUNT ARGS…: all data crosses, in both directions
ping() {
	crossing $((2 * $2 * $3)) pair "$1" -d $DEV -s "$2" -n "$3" "${@:4}"
}

for g in $V4 $V6; do
	f=IPv4
	[ $g = $V4 ] || f=IPv6
	for t in rc uc srq; do
		p=ibv_${t}_pingpong
		for s in 1 1024 4097 65536; do
			check "$t, $f: $s bytes, polling" ping $p $s 200 -g $g -c
			check "$t, $f: $s bytes, events" ping $p $s 200 -g $g -c -e
		done
		check "$t, $f: 4 MiB" ping $p 4194304 5 -g $g -c
		for mtu in 256 512; do check "$t, $f: path MTU $mtu" ping $p 4096 100 -g $g -m $mtu -c; done
		check "$t, $f: few receives" ping $p 4096 100 -g $g -r 16 -c
	done
	for s in 1 63 1024; do
		check "ud, $f: $s bytes, polling" ping ibv_ud_pingpong $s 200 -g $g -c
		check "ud, $f: $s bytes, events" ping ibv_ud_pingpong $s 200 -g $g -c -e
	done
	check "srq, $f: 32 queue pairs on one shared receive queue" ping ibv_srq_pingpong 4096 500 -g $g -q 32
	check "xsrq, $f: 4096 bytes, XRC, polling" ping ibv_xsrq_pingpong 4096 200 -g $g
	check "xsrq, $f: 20000 bytes, XRC, events" ping ibv_xsrq_pingpong 20000 200 -g $g -e
done
check "rc: GID 0, made of the MAC" ping ibv_rc_pingpong 4096 100 -g 0 -c
export VERBENA_LIDS=1
for t in rc uc ud; do check "$t: LIDs instead of GIDs" ping ibv_${t}_pingpong 1024 200 -c; done
unset VERBENA_LIDS
check "rc: the new post API" ping ibv_rc_pingpong 4096 100 -g $V4 -c -N
check "rc: four at once" several 4 ping ibv_rc_pingpong 4096 500 -g $V4 -c
finish

#!/bin/bash
# pingpong.sh - rdma-core's example programs, as Debian ships them, against each other
# follows: ibv_rc_pingpong(1), ibv_uc_pingpong(1), ibv_ud_pingpong(1), ibv_srq_pingpong(1), ibv_xsrq_pingpong(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ibv_rc_pingpong
D=(-d roce_lo)

for t in rc uc srq; do
	p=ibv_${t}_pingpong
	for s in 1 2 63 4096 4097 65536 1048576; do
		check "$t: $s bytes, polling" pair "$p" "${D[@]}" -g 1 -s $s -n 200 -c
		check "$t: $s bytes, events" pair "$p" "${D[@]}" -g 1 -s $s -n 200 -c -e
	done
	check "$t: 16 MiB" pair "$p" "${D[@]}" -g 1 -s 16777216 -n 10 -c
	check "$t: the defaults" pair "$p" -g 1
	for mtu in 256 1024 4096; do
		check "$t: path MTU $mtu" pair "$p" "${D[@]}" -g 1 -m $mtu -n 100 -c
	done
	check "$t: few receives" pair "$p" "${D[@]}" -g 1 -r 16 -n 100 -c
	check "$t: GID 0, made of the MAC" pair "$p" "${D[@]}" -g 0 -n 100 -c
done
for s in 1 2 63 1024 2048 4096; do
	check "ud: $s bytes, polling" pair ibv_ud_pingpong "${D[@]}" -g 1 -s $s -n 200 -c
	check "ud: $s bytes, events" pair ibv_ud_pingpong "${D[@]}" -g 1 -s $s -n 200 -c -e
done
check "ud: GID 0, made of the MAC" pair ibv_ud_pingpong "${D[@]}" -g 0 -n 100 -c
check "srq: 32 queue pairs on one shared receive queue" pair ibv_srq_pingpong "${D[@]}" -g 1 -q 32 -n 500
check "srq: 32 queue pairs, events" pair ibv_srq_pingpong "${D[@]}" -g 1 -q 32 -n 500 -e
check "rc: time stamps" pair ibv_rc_pingpong "${D[@]}" -g 1 -n 100 -t
check "rc: the new post API" pair ibv_rc_pingpong "${D[@]}" -g 1 -n 100 -c -N
# -o: on-demand paging; -O: implicit; -P: with prefetch; -j: device memory
for wire in auto always; do
	export VERBENA_WIRE=$wire
	for o in -o -O "-o -P" "-O -P" -j; do
		for s in 64 65536; do
			check "rc $o, VERBENA_WIRE=$wire: $s bytes" pair ibv_rc_pingpong "${D[@]}" -g 1 -s $s -n 100 -c $o
		done
	done
	check "srq -o, VERBENA_WIRE=$wire" pair ibv_srq_pingpong "${D[@]}" -g 1 -n 100 -c -o
done
unset VERBENA_WIRE

for s in 1 4096 65536; do
	check "xsrq: $s bytes, XRC, polling" pair ibv_xsrq_pingpong "${D[@]}" -g 1 -s $s -n 200
	check "xsrq: $s bytes, XRC, events" pair ibv_xsrq_pingpong "${D[@]}" -g 1 -s $s -n 200 -e
done

# programs that know only LIDs: there are none unless the variable is set
refused() { ! pair "$@" >/dev/null && grep -q 'Failed to modify QP to RTR' "$work/server.out"; }
check "rc: without a GID, and without LIDs, is refused" refused ibv_rc_pingpong "${D[@]}" -n 10
export VERBENA_LIDS=1
for t in rc uc ud srq; do
	check "$t: LIDs instead of GIDs" pair ibv_${t}_pingpong "${D[@]}" -n 200 -c
	check "$t: GIDs beside LIDs" pair ibv_${t}_pingpong "${D[@]}" -g 1 -n 200 -c
done
unset VERBENA_LIDS

if [ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6; then
	for t in rc uc ud srq; do
		check "$t: IPv6, GID ::1" pair ibv_${t}_pingpong "${D[@]}" -g 2 -n 100 -c
	done
else
	skip "IPv6, GID ::1" "lo has no IPv6 address"
fi
finish

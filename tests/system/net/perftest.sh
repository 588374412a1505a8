#!/bin/bash
# perftest.sh - Debian's perftest, unmodified, from one host to another
# follows: perftest(1), ib_send_bw(1) and its siblings
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
need ib_send_lat
check "two hosts" hosts

# perf PROGRAM ARGS…: both ends succeed, and the amount of data in the client's rows has crossed. -C: in cycles; otherwise
# perftest measures the processor's frequency, for up to a second
perf() {
	local a b moved crossed cycles=()
	[[ $1 != *_lat ]] || cycles=(-C)
	a=$(came $A) b=$(came $B)
	pair "$1" -F -u 18 -d $DEV "${cycles[@]}" "${@:2}" || return 1
	crossed=$(($(came $A) - a + $(came $B) - b))
	moved=$(awk '/^ *#bytes/ { head = 1; next } head && $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && NF >= 4 { n += $1 * $2 } END { printf "%d", n }' "$work/client.out")
	[ "$moved" -gt 0 ] && [ "$crossed" -ge "$moved" ] && return 0
	echo "moved $moved bytes, $crossed crossed: $*"
	said_by_both
	return 1
}

lat="ib_send_lat ib_write_lat ib_read_lat ib_atomic_lat"
bw="ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw"
for x in $V4 $V6; do
	for p in $lat $bw; do check "$p: GID $x" perf $p -x $x -n 50; done
	for p in ib_send_lat ib_send_bw; do
		check "$p -c UD: GID $x" perf $p -c UD -x $x -s 1024 -n 100
		check "$p -c UC: GID $x" perf $p -c UC -x $x -s 4096 -n 50 -t 16
	done
	for p in $lat $bw; do check "$p -c XRC: GID $x" perf $p -c XRC -x $x -n 50; done
	for p in ib_write_lat ib_write_bw; do check "$p -c UC: GID $x" perf $p -c UC -x $x -s 4096 -n 50 -t 16; done
done
# -a measures the frequency for each of 23 sizes
for p in ib_write_lat ib_read_lat; do
	for s in 2 1024 4096 65536 8388608; do check "$p: $s bytes" perf $p -x $V4 -s $s -n 5; done
done
check "ib_send_bw -a: all sizes, 2 bytes to 8 MiB" perf ib_send_bw -x $V4 -a -n 5
for p in $bw; do
	check "$p -b: both ways" perf $p -x $V4 -b -n 100
	check "$p -q 16: many queue pairs" perf $p -x $V4 -q 16 -n 50
done
check "ib_send_bw -q 16 -b: many queue pairs, both ways" perf ib_send_bw -x $V4 -q 16 -b -s 4096 -n 50
for p in ib_send_lat ib_send_bw ib_read_bw; do check "$p -e: events" perf $p -x $V4 -e -n 100; done
for p in ib_send_bw ib_write_bw ib_read_bw; do check "$p -m 256: path MTU 256" perf $p -x $V4 -m 256 -n 50; done
for p in ib_send_bw ib_write_bw ib_read_bw; do check "$p: four at once" several 4 pair $p -F -u 18 -d $DEV -x $V4 -n 500; done
check "ib_send_bw --use-srq" perf ib_send_bw -x $V4 --use-srq -n 100
check "ib_read_bw -o 1: one read at a time" perf ib_read_bw -x $V4 -o 1 -n 100

for n in $A $B; do ip -n $n link set net0 mtu 9000; done
for p in ib_send_bw ib_write_bw ib_read_bw; do
	check "$p -m 4096: path MTU 4096" perf $p -x $V4 -m 4096 -n 50
	check "$p -m 4096: path MTU 4096, IPv6" perf $p -x $V6 -m 4096 -n 50
done
check "ib_send_lat -c UD: 4096 bytes" perf ib_send_lat -c UD -x $V4 -s 4096 -n 50
finish

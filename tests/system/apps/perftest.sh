#!/bin/bash
# perftest.sh - Debian's perftest, unmodified: every program, transport and option that needs no connection manager
# follows: perftest(1), ib_send_bw(1) and its siblings
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ib_send_lat

# perf PROGRAM ARGS…: both ends succeed, and the client prints a row of numbers. -C: in cycles; otherwise perftest measures
# the processor's frequency for each size, for up to a second
perf() {
	local cycles=()
	[[ "$*" != *_lat* || "$*" = *" -D "* ]] || cycles=(-C)
	pair "$1" -F -d roce_lo "${cycles[@]}" "${@:2}" || return 1
	awk '/^ *#bytes/ { head = 1; next } head && $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && NF >= 4 { n++ } END { exit !n }' "$work/client.out" && return 0
	echo "no figures"
	said_by_both
	return 1
}

lat="ib_send_lat ib_write_lat ib_read_lat ib_atomic_lat"
bw="ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw"
for p in $lat $bw; do
	check "$p: the defaults" perf $p -n 100
done
# each of the 23 sizes of -a costs both ends a quarter of a second, in which perftest measures the processor's frequency
check "ib_send_lat -a: all sizes, 2 bytes to 8 MiB" perf ib_send_lat -a -n 10
for p in ib_write_lat ib_read_lat; do
	for s in 2 4096 65536 8388608; do check "$p: $s bytes" perf $p -s $s -n 10; done
done
for p in ib_send_lat ib_write_lat ib_read_lat; do
	for x in 0 1 2; do check "$p: GID $x" perf $p -x $x -n 50; done
done
for p in ib_send_bw ib_write_bw ib_read_bw; do
	check "$p -a: all sizes, 2 bytes to 8 MiB" perf $p -a -n 10
	for x in 0 1 2; do check "$p: GID $x" perf $p -x $x -n 50; done
done
for p in ib_send_lat ib_write_lat; do
	for s in 1 4096 65536; do check "$p: UC, $s bytes" perf $p -c UC -s $s -n 50; done
done
for p in ib_send_bw ib_write_bw; do
	for s in 1 4096 65536 1048576; do check "$p: UC, $s bytes" perf $p -c UC -s $s -n 50 -t 16; done
done
for p in $lat $bw; do check "$p: XRC" perf $p -c XRC -n 100; done
check "ib_send_bw: XRC, all sizes, 2 bytes to 8 MiB" perf ib_send_bw -c XRC -a -n 10
for p in ib_write_bw ib_read_bw; do
	for s in 2 4096 8388608; do check "$p: XRC, $s bytes" perf $p -c XRC -s $s -n 10; done
done
check "ib_send_lat: UD, all sizes" perf ib_send_lat -c UD -a -n 50
check "ib_send_bw: UD" perf ib_send_bw -c UD -s 2048 -n 200
for p in $bw; do
	check "$p -b: both ways" perf $p -b -n 200
	check "$p -q 16: many queue pairs" perf $p -q 16 -n 100
	check "$p -D 1: a duration" perf $p -D 1
	check "$p -N: no peak figure" perf $p -N -n 100
	check "$p -Q 1: every request signalled" perf $p -Q 1 -n 100
done
# mapped PROGRAM ARGS…: prints how many bytes the client has copied through a mapping of the server's memory
mapped() {
	VERBENA_LOG=debug perf "$@" >&2 && sed -n 's/.* of these \([0-9]*\) mapped.*/\1/p' "$work/client.out"
}
maps() { [ "$(mapped "$@")" -gt 0 ]; }
maps_nothing() { [ "$(VERBENA_MEMORY=off mapped "$@")" = 0 ]; }
for p in ib_write_bw ib_read_bw; do
	sanitized && { skip "$p: the peer's memory is mapped" "the sanitized launcher preloads nothing"; continue; }
	check "$p: the peer's memory is mapped" maps $p -D 1
	check "$p: it is not with VERBENA_MEMORY=off" maps_nothing $p -D 1
done
for p in ib_send_bw ib_write_bw; do
	check "$p -q 16 -b: many queue pairs, both ways" perf $p -q 16 -b -s 4096 -n 100
	check "$p -l 8: lists of requests" perf $p -l 8 -s 4096 -n 128
	check "$p -c UC -b" perf $p -c UC -b -n 100 -t 16
done
for p in ib_send_lat ib_send_bw; do
	check "$p -e: events" perf $p -e -n 200
	for i in 0 1 64 220; do check "$p -I $i: inline" perf $p -I $i -s $((i ? i : 8)) -n 100; done
	check "$p --use-srq" perf $p --use-srq -n 200
	check "$p -c UD -e" perf $p -c UD -e -s 1024 -n 100
	check "$p -r 1: one receive" perf $p -r 1 -n 100
done
for p in ib_write_lat ib_write_bw; do
	for i in 0 64 220; do check "$p -I $i: inline" perf $p -I $i -s $((i ? i : 8)) -n 100; done
done
check "ib_read_bw -e: events" perf ib_read_bw -e -n 200
check "ib_atomic_bw -e: events" perf ib_atomic_bw -e -n 200
check "ib_read_lat -o 1: one read at a time" perf ib_read_lat -o 1 -n 100
check "ib_read_bw -o 1: one read at a time" perf ib_read_bw -o 1 -n 100
check "ib_atomic_lat: compare and swap" perf ib_atomic_lat -A CMP_AND_SWAP -n 100
check "ib_atomic_lat: fetch and add" perf ib_atomic_lat -A FETCH_AND_ADD -n 100
check "ib_atomic_bw -b -q 4" perf ib_atomic_bw -A FETCH_AND_ADD -b -q 4 -n 100
check "ib_send_bw: path MTU 256" perf ib_send_bw -m 256 -n 100
check "ib_send_lat -D 1: a duration" perf ib_send_lat -D 1
for p in ib_write_bw ib_read_bw ib_send_bw ib_write_lat; do # it refuses atomics itself
	check "$p --odp: on-demand paging" perf $p --odp -n 100
done
finish

#!/bin/bash
# gloo.sh - Debian's Gloo (collectives for machine learning) over its ibverbs transport: on one host and between two
# follows: gloo/transport/ibverbs
# SPDX-License-Identifier: MIT
case ${1:-} in
cable) source "$(dirname "$0")/../net/lib.sh" ;;
*) source "$(dirname "$0")/../../support/lib.sh" ;;
esac
need g++
[ -e /usr/include/gloo/transport/ibverbs/device.h ] || { skip gloo "libgloo-dev is not installed"; exit 0; }
LIMIT=100

compiled() { g++ -std=c++17 -O1 -w -o "$work/collectives" "$ROOT/tests/system/apps/gloo/collectives.cc" -lgloo && chmod 755 "$work/collectives"; }
# ranks N DEVICE: all agree; on two hosts, every other rank runs on the second
ranks() {
	local r where pids=() status=0
	rm -rf "$work/meet" "$work"/rank.*
	mkdir "$work/meet"
	for r in $(seq 0 $(($1 - 1))); do
		where=("${on_a[@]}")
		[ $((r % 2)) = 0 ] || where=("${on_b[@]}")
		timeout -k 2 $LIMIT "${where[@]}" "${run[@]}" "$work/collectives" "$r" "$1" "$work/meet" "$2" 1 >"$work/rank.$r" 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || status=1; done
	[ $status = 0 ] && [ "$(cat "$work"/rank.* | grep -c ': right$')" = "$1" ] && return 0
	tail -n 5 "$work"/rank.*
	return 1
}
check "a program of Gloo's is compiled" compiled || exit 1
if [ "${1:-}" = cable ]; then
	check "two hosts" hosts || exit 1
	for n in 2 4; do check "two hosts: sums and broadcasts of $n ranks" crossing 1000000 ranks $n $DEV; done
	finish
fi
on_a=(env) on_b=(env)
for n in 2 3 4; do check "sums and broadcasts of $n ranks" ranks $n roce_lo; done
"$0" cable || failed=1
finish

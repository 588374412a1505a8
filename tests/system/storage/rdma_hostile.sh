#!/bin/bash
# rdma_hostile.sh - runs rdma_hostile on Verbena: between two programs of one host, and over the network
# see: tests/system/storage/rdma_hostile.c
# SPDX-License-Identifier: MIT
# usage: rdma_hostile.sh PROGRAM TARGET
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
limit=$((120 * SLOW))
check "hostile hosts on the same machine" timeout -k 2 $limit "${run[@]}" "$1" "$2"
check "hostile hosts on the same machine, iWARP" env VERBENA_DEVICES=iwarp:lo timeout -k 2 $limit "${run[@]}" "$1" "$2"
if [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; then # outside, another program may hold port 4791
	mkdir -m 700 "$work/wire" "$work/iwarp"
	broker=wire
	on_wire() {
		unshare -n env VERBENA_WIRE=always "VERBENA_RUNTIME=$work/$broker" sh -c 'ip link set lo up; exec "$@"' sh \
			timeout -k 2 $limit "${run[@]}" "$@"
	}
	check "hostile hosts by the wire" on_wire "$1" "$2"
	broker=iwarp
	VERBENA_DEVICES=iwarp:lo check "hostile hosts by the wire, iWARP" on_wire "$1" "$2"
else
	skip "hostile hosts by the wire" "only root makes network namespaces"
fi
exit $failed

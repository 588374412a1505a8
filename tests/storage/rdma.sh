#!/bin/bash
# rdma.sh - rdma_test on Verbena: between two programs of one host, and by the wire
# follows: tests/storage/rdma_test.c
# SPDX-License-Identifier: MIT
# usage: rdma.sh PROGRAM
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../lib.sh"
limit=$((200 * SLOW))
check "hosts on the same machine" timeout -k 2 $limit "${run[@]}" "$1"
check "hosts on the same machine, iWARP" env VERBENA_DEVICES=iwarp:lo timeout -k 2 $limit "${run[@]}" "$1"
if [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; then # port 4791 may be somebody else's outside
	mkdir -m 700 "$work/wire" "$work/iwarp"
	broker=wire
	on_wire() {
		unshare -n env VERBENA_WIRE=always "VERBENA_RUNTIME=$work/$broker" sh -c 'ip link set lo up; exec "$@"' sh \
			timeout -k 2 $limit "${run[@]}" "$1"
	}
	check "hosts by the wire" on_wire "$1"
	broker=iwarp
	VERBENA_DEVICES=iwarp:lo check "hosts by the wire, iWARP" on_wire "$1"
else
	skip "hosts by the wire" "only root makes network namespaces"
fi
exit $((failed > 0))

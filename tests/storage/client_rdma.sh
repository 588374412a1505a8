#!/bin/bash
# client_rdma.sh - the initiator and verbena-target, both on Verbena: RDMA named and found, on one host and by the wire
# follows: tests/storage/client_target.c
# SPDX-License-Identifier: MIT
# usage: client_rdma.sh CLIENT TARGET EVENTS HOSTILE VANISH
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../lib.sh"
limit=$((200 * SLOW))
check "RDMA on the same machine" timeout -k 2 $limit "${run[@]}" "$1" "$2" rdma
check "iWARP on the same machine" env VERBENA_DEVICES=iwarp:lo timeout -k 2 $limit "${run[@]}" "$1" "$2" rdma
check "what the target tells while a disk is open" timeout -k 2 $limit "${run[@]}" "$3" "$2" rdma
check "a target that breaks the protocol" timeout -k 2 $limit "${run[@]}" "$4"
check "hosts that vanish" timeout -k 2 $limit "${run[@]}" "$5" "$2" rdma $((200 / SLOW))
check "RDMA found by auto" timeout -k 2 $limit "${run[@]}" "$1" "$2" auto
if [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; then # port 4791 may be somebody else's outside
	mkdir -m 700 "$work/wire" "$work/iwarp"
	broker=wire
	on_wire() {
		unshare -n env VERBENA_WIRE=always "VERBENA_RUNTIME=$work/$broker" sh -c 'ip link set lo up; exec "$@"' sh \
			timeout -k 2 $limit "${run[@]}" "$@"
	}
	check "RDMA by the wire" on_wire "$1" "$2" rdma
	broker=iwarp
	VERBENA_DEVICES=iwarp:lo check "iWARP by the wire" on_wire "$1" "$2" rdma
else
	skip "RDMA by the wire" "only root makes network namespaces"
fi
exit $((failed > 0))

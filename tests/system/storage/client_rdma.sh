#!/bin/bash
# client_rdma.sh - the initiator and verbena-target on Verbena, with rdma and auto, on one host and over the network
# see: tests/system/storage/client_target.c
# SPDX-License-Identifier: MIT
# usage: client_rdma.sh CLIENT TARGET EVENTS HOSTILE VANISH DISK [PLUGIN]
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/beside.sh"
limit=$((200 * SLOW))
if may_wire; then
	begin wire on_wire wire "$1" "$2" rdma
	VERBENA_FAULT=loss=1,reorder=2 begin bad on_wire bad "$1" "$2" rdma
	VERBENA_DEVICES=iwarp:lo begin iwarp on_wire iwarp "$1" "$2" rdma
fi
check "RDMA on the same machine" timeout -k 2 $limit "${run[@]}" "$1" "$2" rdma
check "iWARP on the same machine" env VERBENA_DEVICES=iwarp:lo timeout -k 2 $limit "${run[@]}" "$1" "$2" rdma
check "what the target tells while a disk is open" timeout -k 2 $limit "${run[@]}" "$3" "$2" rdma
check "a target that breaks the protocol" timeout -k 2 $limit "${run[@]}" "$4" 127.0.0.1 "${@:6}"
check "hosts that vanish" timeout -k 2 $limit "${run[@]}" "$5" "$2" rdma $((200 / SLOW))
check "attempts to return to RDMA hold no request up" timeout -k 2 $limit "${run[@]}" "$BUILD/tests/system/storage/storage_client_paths" return
check "RDMA found by auto" timeout -k 2 $limit "${run[@]}" "$1" "$2" auto
if may_wire; then
	check "RDMA by the wire" ended wire
	check "iWARP by the wire" ended iwarp
	check "RDMA by a wire that loses packets, and changes their order" ended bad
else
	skip "RDMA by the wire" "only root makes network namespaces"
fi
exit $((failed > 0))

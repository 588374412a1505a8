#!/bin/bash
# rdma.sh - runs rdma_test on Verbena: between two programs of one host, and over the network
# see: tests/system/storage/rdma_test.c
# SPDX-License-Identifier: MIT
# usage: rdma.sh PROGRAM
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/beside.sh"
limit=$((200 * SLOW))
if may_wire; then
	begin wire on_wire wire "$1"
	VERBENA_DEVICES=iwarp:lo begin iwarp on_wire iwarp "$1"
fi
check "hosts on the same machine" timeout -k 2 $limit "${run[@]}" "$1"
check "hosts on the same machine, iWARP" env VERBENA_DEVICES=iwarp:lo timeout -k 2 $limit "${run[@]}" "$1"
if may_wire; then
	check "hosts by the wire" ended wire
	check "hosts by the wire, iWARP" ended iwarp
else
	skip "hosts by the wire" "only root makes network namespaces"
fi
exit $((failed > 0))

#!/bin/bash
# windows.sh - memory windows between two hosts: every kind of request by their keys, and their invalidation by the peer
# follows: IBA volume 1, 10.6 (memory windows); RFC 5040, 8.1
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/../../support/cm.sh"
check "two hosts" hosts
compile rdmap ../../interop/rdmap.c -lrdmacm -libverbs || exit 1
kinds=send,send-inv,send-se-inv,write,read,write-imm,cmp-swap,fetch-add

there=$V4_B any=0.0.0.0

for way in RoCE iWARP; do
	[ $way = RoCE ] || export VERBENA_DEVICES=iwarp:net0
	for type in 1 2; do
		check "$way, type $type: both ends open their memory by windows" \
			both "$work/rdmap" -s $any -w $type -k $kinds -- "$work/rdmap" -c @ -w $type -k $kinds
	done
done
finish

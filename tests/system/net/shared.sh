#!/bin/bash
# shared.sh - more programs than sockets of UDP port 4791: programs receive each other's packets and forward them
# see: docs/roce.md
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$HERE/../../support/cm.sh"
there=$V4_B
LIMIT=100
export VERBENA_LANES=4 # one of them is the broker's
hosts || exit 1
compile_verify || exit 1
# … and the broker shares its socket with no program
connects() {
	free_port
	both rping -s -a $there -p $port -C 100 -V -- rping -c -a @ -p $port -C 100 -V
}
ping() { pair ibv_rc_pingpong -d $DEV -g $V4 -e -c -n 300; }
work_of() { pair "$work/../verify" -d $DEV -g $V4 -n 500000; }
check "six pairs of programs over three sockets on each side" crossing 10000000 several 6 ping
check "six pairs that connect by rdma_cm" crossing 100000 several 6 connects
check "sends, writes, reads and atomics of four pairs, all right" crossing 4000000 several 4 work_of
sockets() { ip netns exec $B ss -uanH | grep -c ':4791 '; }
gone() { [ "$(sockets)" = 0 ]; }
check "the sockets go with their programs" wait_for 30 gone
finish

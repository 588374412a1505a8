#!/bin/bash
# rsocket.sh - rdma-core's programs over rsockets, and programs that know only sockets over the preload library
# follows: rsocket(7), rstream(1), rcopy(1), riostream(1), udpong(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
source "$(dirname "$0")/../rsocket/programs.sh"
need rstream rcopy riostream udpong
rsocket_programs
if [ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6; then
	HOST=::1
	check "rstream, IPv6" both rstream -T v -S 4096 -C 100 -I 2
	check "the calls behave as those of sockets, IPv6" api ::1
	HOST=127.0.0.1
fi
check "the calls behave as those of sockets" api 127.0.0.1
# outside, another program may hold UDP port 4791
alone() {
	local own
	own=$(mktemp -d "$work/alone.XXXXXX") && (on_a=("$ROOT/tests/support/own-network" env "VERBENA_RUNTIME=$own"); "$@")
}
check "the calls behave as those of sockets, by RoCEv2" on_wire alone api 127.0.0.1
plain_programs
if ! sanitized && [ -e "$PRELOAD" ]; then
	check "calls of plain sockets" plain calls
	check "calls of plain sockets, by RoCEv2" on_wire alone plain calls
	RDMAV_FORK_SAFE=1 check "accepting is put off until data comes, where who accepts may fork" \
		plain calls accepting_may_be_put_off_until_data_comes
	VERBENA_FAULT=loss=2 check "what a program wrote before its end arrives, though packets are lost" \
		on_wire alone plain calls what_a_program_wrote_before_its_end_arrives
fi
finish

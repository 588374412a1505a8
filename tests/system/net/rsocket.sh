#!/bin/bash
# rsocket.sh - rsockets between two hosts: rdma-core's programs, and programs that only use sockets
# follows: rsocket(7), rstream(1), rcopy(1), riostream(1), udpong(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$HERE/../rsocket/programs.sh"
need rstream rcopy riostream udpong
check "two hosts" hosts
rsocket_programs
check "rstream: 100 MB cross" crossing 100000000 both rstream -S 1000000 -C 50 -I 1
check "rcopy: 20 MB cross" crossing 20000000 copied 20000000
HOST=$V6_B
check "rstream, IPv6: 100 MB cross" crossing 100000000 both rstream -S 1000000 -C 50 -I 1
HOST=$V4_B
check "the calls behave as those of sockets, by RoCEv2" on_wire api $V4_A
check "the calls behave as those of sockets, by RoCEv2 and IPv6" on_wire api $V6_A

if command -v iperf3 >/dev/null && ! sanitized; then
	check "iperf3 over the preload library: 20 MB cross" plain crossing 20000000 iperf -n 20M
	check "iperf3, the other way: 20 MB cross" plain crossing 20000000 iperf -n 20M -R
fi
plain_programs
finish

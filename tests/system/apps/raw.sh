#!/bin/bash
# raw.sh - perftest's raw_ethernet_bw and raw_ethernet_lat, unmodified, over a veth pair
# follows: raw_ethernet_bw(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need raw_ethernet_bw raw_ethernet_lat

mac() { ip -br link show "$1" | awk '{ print $3 }'; }

listens() { grep -q ' 0003 ' /proc/self/net/packet; } # a packet socket that receives all protocols

# raw PROGRAM ARGS…: a server on v1 and a client on v0, which do not talk to each other first: the client is started when
# the server has its rule
raw() {
	local program=$1 server status
	shift
	timeout -k 2 $((60 * SLOW)) "${run[@]}" "$program" --server -F -d roce_v1 -B "$(mac v1)" -E "$(mac v0)" "$@" >"$work/server.out" 2>&1 &
	server=$!
	wait_for 20 listens || { kill $server; cat "$work/server.out"; return 1; }
	timeout -k 2 $((60 * SLOW)) "${run[@]}" "$program" --client -F -d roce_v0 -B "$(mac v0)" -E "$(mac v1)" "$@" >"$work/client.out" 2>&1
	status=$?
	wait $server || status=$?
	cat "$work/client.out" "$work/server.out"
	[ $status = 0 ] && [ "$(grep -cE '^ *[0-9]+ +[0-9]+ ' "$work/client.out")" = 1 ]
}
bandwidth() { raw raw_ethernet_bw -n 500 "$@"; }
latency() { raw raw_ethernet_lat -n 200 "$@"; }

over_veth() {
	ip link set lo up
	ip link add v0 type veth peer name v1
	ip link set v0 up
	ip link set v1 up
	wait_for 20 eval 'ip -o link show v1 | grep -q LOWER_UP'
	check "raw_ethernet_lat: frames to and fro" latency -s 512
	check "raw_ethernet_bw: frames of 64 bytes" bandwidth -s 64
	check "raw_ethernet_bw: whole frames" bandwidth -s 1500
	check "raw_ethernet_bw: UDP over IPv4, by its addresses and ports" bandwidth -s 256 -J 10.0.0.2 -j 10.0.0.1 -k 7000 -K 7000
	echo $failed >"$work/failed"
}
export work BUILD
export -f over_veth raw listens mac bandwidth latency check wait_for pause skip
if unshare -n ip link add v0 type veth peer name v1 2>/dev/null; then
	declare -p run SLOW failed >"$work/state"
	unshare -n bash -uc 'trap - EXIT; source "$work/state"; over_veth'
	failed=$(cat "$work/failed" || echo 1)
else
	skip "raw_ethernet over veth" "no right to make network namespaces with veth"
fi
finish

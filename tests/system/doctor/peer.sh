#!/bin/bash
# peer.sh - verbena doctor HOST: a live peer, a firewall in between, a smaller MTU, loss, nobody there
# follows: verbena-doctor(1)
# SPDX-License-Identifier: MIT
# usage: peer.sh, with BUILD in the environment
source "$(dirname "${BASH_SOURCE[0]}")/../net/lib.sh"
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
need rping nft python3
hosts 9000 || { echo "not ok two hosts"; exit 1; }

ask() { # STATUS HOST [OPTION]: from host a
	local status=0
	timeout $((90 * SLOW)) "${on_a[@]}" "$VERBENA" doctor ${3:+"$3"} "$2" >"$work/report" 2>&1 </dev/null || status=$?
	cat "$work/report"
	[ $status = "$1" ] && return 0
	echo "exit status $status, not $1"
	return 1
}
finds() { # PATTERN
	grep -qE "$1" "$work/report" && return 0
	echo "missing: $1"
	return 1
}

live() { # ADDRESS
	ask 0 "$1" && finds "^\[ok\]   route: to $1 by roce_net0 on net0" && finds '^\[ok\]   tcp:' &&
		finds '^\[ok\]   path-mtu: RoCE packets of 4096 bytes' && finds '^\[ok\]   peer: .* 10 of 10 requests, latency' &&
		finds "^\[ok\]   kind: $1 is Verbena [0-9.]+$"
}
as_json() {
	ask 0 $V4_B --json && python3 -c 'import json, sys
r = json.load(open(sys.argv[1])); assert r["status"] == "ok" and any(f["check"] == "peer" for f in r["findings"])' "$work/report"
}
no_roce() {
	ask 2 $V4_B && finds '^\[fail\] peer: .* did not answer 3 requests .*the port is closed .*no RoCE now'
}
small_mtu() { # a switch in between that drops larger packets
	ip netns exec $B nft 'add table inet m; add chain inet m i { type filter hook prerouting priority -300; }; add rule inet m i meta length > 2200 drop' || return 1
	ask 2 $V4_B && finds '^\[fail\] path-mtu: RoCE packets of 4096 bytes.*the largest that do have 2048' && grep -q 'mend: ip link set net0 mtu 2128' "$work/report"
	local status=$?
	ip netns exec $B nft delete table inet m
	return $status
}
loss() {
	ip netns exec $B nft 'add table inet l; add chain inet l i { type filter hook input priority 0; }; add rule inet l i udp dport 4791 numgen inc mod 3 0 drop' || return 1
	ask 1 $V4_B && finds '^\[warn\] peer: .* requests had no answer \([1-9][0-9] % lost\)'
	local status=$?
	ip netns exec $B nft delete table inet l
	return $status
}
firewall() {
	ip netns exec $B nft 'add table inet f; add chain inet f i { type filter hook input priority 0; }; add rule inet f i udp dport 4791 drop' || return 1
	ask 2 $V4_B && finds '^\[ok\]   tcp:' && finds '^\[fail\] peer: .*the host is there, but has no RoCE, or a firewall drops'
	local status=$?
	ip netns exec $B nft delete table inet f
	return $status
}
forbids() { # by ICMP
	ip netns exec $B nft 'add table inet f; add chain inet f i { type filter hook input priority 0; }; add rule inet f i udp dport 4791 reject with icmpx admin-prohibited' || return 1
	ask 2 $V4_B && finds '^\[fail\] peer: .*a firewall forbids it'
	local status=$?
	ip netns exec $B nft delete table inet f
	return $status
}
nobody() {
	ask 2 192.0.2.77 && finds '^\[warn\] tcp: .* does not answer' && finds '^\[fail\] peer:'
}
no_route() { ask 2 203.0.113.1 && finds '^\[fail\] route: no route to 203.0.113.1'; }
no_name() { ask 2 no-such-host.invalid && finds '^\[fail\] name: no-such-host.invalid'; }
itself() { ask 2 $V4_A && finds '^\[ok\]   route: .*this is an address of this host' || ask 0 $V4_A; }

check "a host without RoCE is told from a dead one" no_roce
timeout 600 "${on_b[@]}" "${run[@]}" rping -s -P >"$work/server.out" 2>&1 </dev/null &
server=$!
wait_for 20 port_is_open
check "a peer on Verbena answers, IPv4" live $V4_B
check "a peer on Verbena answers, IPv6" live $V6_B
check "the findings are printed as JSON too" as_json
check "a way that drops large packets is found" small_mtu
check "loss is counted" loss
check "a firewall in between is told from a dead host" firewall
check "a firewall that says so by ICMP is named" forbids
check "nobody there" nobody
check "no route" no_route
check "no such name" no_name
check "an address of this host" itself
kill $server
wait $server 2>/dev/null
finish

#!/bin/bash
# alone.sh - runs the same-host tests that also hold on a network, over the addresses of lo (VERBENA_WIRE=always)
# follows: verbena(7)
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
need ip
[ "$(id -u)" = 0 ] || { skip alone "only root makes network namespaces"; exit 0; }
ns=vb$$l
alone_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	ip netns del $ns 2>/dev/null
	(exit $status)
	cleanup
}
trap alone_cleanup EXIT
trap 'exit 130' INT TERM
ip netns add $ns && ip -n $ns link set lo up || exit 1
mkdir -m 700 "$work/runtime"
datagrams() { ip netns exec $ns cat /proc/net/snmp /proc/net/snmp6 | awk '/^Udp:/ { n = $2 } /^Udp6InDatagrams/ { n += $2 } END { print n }'; }

on_the_wire() { # PROGRAM [TEST]...
	local before
	before=$(datagrams)
	ip netns exec $ns env VERBENA_WIRE=always "VERBENA_RUNTIME=$work/runtime" LD_LIBRARY_PATH="$BUILD/src/abi" \
		timeout 600 "$BUILD/tests/system/local/local_$1" "${@:2}" >"$work/$1.out" 2>&1 || { grep -A5 '^not ok' "$work/$1.out"; tail -3 "$work/$1.out"; return 1; }
	[ $(($(datagrams) - before)) -gt 100 ] || { echo "it did not go by the network"; return 1; }
}
for t in random order many unmapped slots default_gid threads; do
	check "path_$t over UDP" on_the_wire $t
done
# what a refusal does to both ends
check "path_errors over UDP" on_the_wire errors "not granted" "an invalid request" "cannot be filled" "that wraps" "length zero"
# lo has the default GID even without IPv6
ip netns exec $ns sysctl -qw net.ipv6.conf.lo.disable_ipv6=1
check "default_gid over UDP without IPv6" on_the_wire default_gid
finish

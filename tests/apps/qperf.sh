#!/bin/bash
# qperf.sh - Debian's qperf, unmodified: its tests of RC, on one host and between two network namespaces
# follows: qperf(1)
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v ethtool >/dev/null; then
	source "$HERE/../net/lib.sh"
	namespaces_too=1
else
	source "$HERE/../lib.sh"
	namespaces_too=
fi
need qperf
LIMIT=60

# One server for all tests of a part; the addresses of the parts differ, so that they do not disturb each other.
# on_server, on_client: what stands before the command. T: for how long each test runs, in whole seconds
T=1
serve() {
	free_port
	"${on_server[@]}" "${run[@]}" qperf -lp "$port" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 up || { said_by_both; return 1; }
}
up() { "${on_server[@]}" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qi ":$(printf %04X "$port") [0-9A-F]*:0000 0A"; }

stop_serving() { # the one that listens, and those that it left behind
	pkill -P "$server"
	kill "$server"
	wait "$server" 2>/dev/null
}

# figure TEST ARGS…: ends well, and has a figure that is not nothing
figure() {
	local test=$1
	shift
	timeout -k 2 $((LIMIT * SLOW)) "${on_client[@]}" "${run[@]}" qperf -lp "$port" -t $T -to 30 "$@" "$HOST" "$test" >"$work/client.out" 2>&1 </dev/null ||
		{ echo "client ended with $?"; said_by_both; return 1; }
	awk '$2 == "=" && $3 > 0 { n++ } END { exit !n }' "$work/client.out" && return 0
	echo "no figure"
	said_by_both
	return 1
}
# Without its connection manager qperf knows only LIDs, which RoCE has none of; with it, only RC
tests="rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw rc_rdma_write_poll_lat
	rc_compare_swap_mr rc_fetch_add_mr"

on_server=(env) on_client=(env) HOST=127.0.0.1
check "a server on this host" serve
for t in $tests ver_rc_compare_swap ver_rc_fetch_add; do check "qperf $t" figure "$t" -cm1; done
check "qperf rc_bw, 1 MiB" figure rc_bw -cm1 -m 1M
check "qperf rc_lat, polling" figure rc_lat -cm1 -cp1
stop_serving

if [ -n "$namespaces_too" ]; then
	check "two hosts" hosts
	on_server=("${on_b[@]}") on_client=("${on_a[@]}") HOST=$V4_B
	check "a server on the other host" serve
	for t in $tests; do check "qperf $t across the cable" crossing 2000 figure "$t" -cm1; done
	stop_serving
else
	skip "qperf between two hosts" "only root makes network namespaces"
fi
finish

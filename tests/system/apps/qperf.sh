#!/bin/bash
# qperf.sh - Debian's qperf, unmodified: its tests of RC, UC and UD, on one host and between two network namespaces
# follows: qperf(1), verbena(7)
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v ethtool >/dev/null; then
	source "$HERE/../net/lib.sh"
	namespaces_too=1
else
	source "$HERE/../../support/lib.sh"
	namespaces_too=
fi
need qperf

# One server for all tests of a part. The parts use different addresses, so that they do not disturb each other.
# on_server, on_client: prefixes of the commands. T: duration of each test, in whole seconds
T=1
serve() {
	free_port
	"${on_server[@]}" "${run[@]}" qperf -lp "$port" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 up || { said_by_both; return 1; }
}
up() { "${on_server[@]}" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qi ":$(printf %04X "$port") [0-9A-F]*:0000 0A"; }

stop_serving() { # the listener, and the processes that it left behind
	pkill -P "$server"
	kill "$server"
	wait "$server" 2>/dev/null
}

# figure TEST ARGS…: succeeds, and prints a figure that is not zero
figure() {
	local test=$1
	shift
	timeout -k 2 $((LIMIT * SLOW)) "${on_client[@]}" "${run[@]}" qperf -lp "$port" -t $T -to 80 "$@" "$HOST" "$test" >"$work/client.out" 2>&1 </dev/null ||
		{ echo "client ended with $?"; said_by_both; return 1; }
	awk '$2 == "=" { if ($3 > 0) n++; else none = 1 } END { exit !n || none }' "$work/client.out" && return 0
	echo "no figure"
	said_by_both
	return 1
}
# With the connection manager qperf supports only RC; without it, it knows LIDs alone, so its adapters have them
tests="rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw rc_rdma_write_poll_lat
	rc_compare_swap_mr rc_fetch_add_mr"
verify="ver_rc_compare_swap ver_rc_fetch_add"
others="uc_lat uc_bw uc_bi_bw uc_rdma_write_lat uc_rdma_write_bw uc_rdma_write_poll_lat ud_lat ud_bw ud_bi_bw"
refused() { ! figure "$@" >/dev/null && cat "$work/client.out"; }

on_server=(env) on_client=(env) HOST=127.0.0.1
check "a server on this host" serve
for t in $tests $verify; do check "qperf $t" figure "$t" -cm1; done
check "qperf rc_bw, 1 MiB" figure rc_bw -cm1 -m 1M
check "qperf rc_lat, polling" figure rc_lat -cm1 -cp1
for t in $tests $verify $others; do check "qperf $t by LIDs" figure "$t" -i roce_lo; done
check "qperf ud_lat by LIDs, polling" figure ud_lat -i roce_lo -cp1
check "qperf rc_lat by rdma_cm beside LIDs" figure rc_lat -cm1
without_lids() { local on_client=(env VERBENA_LIDS=0); refused "$@"; }
check "qperf rc_lat by LIDs, with VERBENA_LIDS=0, is refused" without_lids rc_lat -i roce_lo
stop_serving

if [ -n "$namespaces_too" ]; then
	check "two hosts" hosts
	on_server=("${on_b[@]}") on_client=("${on_a[@]}") HOST=$V4_B
	check "a server on the other host" serve
	for t in $tests; do check "qperf $t across the cable" crossing 2000 figure "$t" -cm1; done
	# the size of the cable's packets: qperf uses 2 KiB, whatever the port reports
	for t in $tests $verify $others; do
		fits=(-mt 1K)
		[[ $t = ud_*bw ]] && fits=(-m 1K)
		check "qperf $t by LIDs across the cable" crossing 500 figure "$t" -i roce_net0 "${fits[@]}"
	done
	stop_serving
else
	skip "qperf between two hosts" "only root makes network namespaces"
fi
finish

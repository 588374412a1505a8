#!/bin/bash
# idle.sh - a waiting program uses no processor time; a stopped target still serves reads and writes
# see: docs/same-host.md
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ib_send_bw

ticks() { # PID: processor time so far, in 1/100 s
	awk '{ sub(/.*\) /, ""); n = $12 + $13 } END { print n + 0 }' "/proc/$1/stat"
}
idle_for() { # SECONDS PID…: together less than 50 ms
	local before=0 after=0 seconds=$1 p
	shift
	for p; do before=$((before + $(ticks "$p"))); done
	sleep "$seconds"
	for p; do after=$((after + $(ticks "$p"))); done
	[ $((after - before)) -lt 5 ] && return 0
	echo "$(((after - before) * 10)) ms of processor time in $seconds s"
	return 1
}

timeout 300 "${run[@]}" ibv_asyncwatch -d roce_lo >"$work/watch" 2>&1 </dev/null &
watch=$!
wait_for 20 grep -q 'async event FD' "$work/watch"
sleep 0.5
check "ibv_asyncwatch waits for free, and so does the broker" idle_for 3 "$(program_of $watch)" $(brokers)
kill $watch
wait $watch 2>/dev/null

# the server sleeps in ibv_get_cq_event while its client is stopped
connected_and_stopped() {
	local s c status
	start_server ib_send_lat -F -d roce_lo -e -n 50000000 && start_client ib_send_lat -F -d roce_lo -e -n 50000000 || return 1
	sleep 1.5
	gone "$server" || gone "$client" && { said_by_both; return 1; }
	s=$(program_of "$server") c=$(program_of "$client")
	kill -STOP "$c"
	sleep 0.5
	idle_for 3 "$s"
	status=$?
	kill -CONT "$c"
	kill "$c" "$s"
	wait "$client" "$server" 2>/dev/null
	return $status
}
check "a program that sleeps in ibv_get_cq_event, with its peer stopped, uses no processor time" connected_and_stopped

# ib_write_bw's server is the target of one-sided traffic: it only waits for the end of the test
target_stopped() { # PROGRAM: the client's test runs to its end while the server is stopped
	local s status
	start_server "$1" -F -d roce_lo -D 3 -s 65536 && start_client "$1" -F -d roce_lo -D 3 -s 65536 || return 1
	sleep 1.5
	s=$(program_of "$server")
	kill -STOP "$s"
	sleep 3
	kill -CONT "$s"
	wait "$client"
	status=$?
	wait "$server" && [ $status = 0 ] && return 0
	said_by_both
	return 1
}
check "ib_write_bw into a stopped program goes on" target_stopped ib_write_bw
check "ib_read_bw from a stopped program goes on" target_stopped ib_read_bw
check "ib_send_bw to a stopped program waits for it, and ends well" target_stopped ib_send_bw
finish

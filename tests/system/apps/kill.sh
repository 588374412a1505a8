#!/bin/bash
# kill.sh - SIGKILL in the middle of a bandwidth test: of one side, of the other, of the broker
# follows: IBA volume 1, 9.7.6 (retry exceeded); verbena-broker(8)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ib_write_bw
export VERBENA_BROKER_LINGER=200

# The first program keeps the broker running between two pairs, so that its tables can be compared
timeout 1200 "${run[@]}" ibv_asyncwatch -d roce_lo >"$work/keeper" 2>&1 </dev/null &
keeper=$!
wait_for 20 grep -q 'async event FD' "$work/keeper"
broker=$(brokers)
tables() { # the broker's open descriptors, one or more for each program
	ls "/proc/$broker/fd" 2>/dev/null | wc -l
}
same_tables() { [ "$(tables)" = "$before" ]; }
before=$(tables)

# The client prints its header: then data flows
runs() { grep -qs '#bytes' "$work/client.out" && sleep 1 || gone "$client"; }
start_pair() {
	rm -f "$work/client.out" # output of an earlier program
	start_server stdbuf -oL "$@" && start_client stdbuf -oL "$@" && wait_for 30 runs
	gone "$server" || gone "$client" || return 0
	said_by_both
	return 1
}

# killed VICTIM SURVIVOR [ANY]: the survivor ends with an error (or with ANY status), and not at our time limit
killed() {
	local status
	kill -9 "$(program_of "$1")" || return 1
	wait_for 30 gone "$2" || { echo "the other side did not end"; said_by_both; return 1; }
	wait "$2"
	status=$?
	wait "$1" 2>/dev/null
	[ $status != 124 ] && [ $status -lt 128 ] && [ "$status${3:-}" != 0 ] && return 0
	echo "the other side ended with $status"
	said_by_both
	return 1
}
for p in ib_write_bw ib_send_bw ib_read_bw; do
	for victim in server client; do
		survivor=$([ $victim = server ] && echo client || echo server)
		# a server of one-sided traffic has nothing outstanding: perftest's own TCP connection tells it of the
		# end
		how="with an error" any="" seconds=20
		# with any adapter a server that only receives notices nothing, and waits until its time is over
		[ $p-$victim = ib_send_bw-client ] && how="when its time is over" any=any seconds=10
		kill_one() { start_pair "$p" -F -d roce_lo -D $seconds -s 65536 && killed "${!victim}" "${!survivor}" $any; }
		check "$p: the $victim is killed, the $survivor ends $how" kill_one
		check "$p: the broker's tables are as before" wait_for 30 same_tables
	done
done
reports_status() { start_pair ib_write_bw -F -d roce_lo -D 20 -s 65536 && killed "$server" "$client" && grep -q 'Failed status\|Completion with error' "$work/client.out"; }
check "ib_write_bw: the client says which completion failed" reports_status

for p in ib_write_bw ib_send_bw ib_read_bw; do
	broker_dies() {
		start_pair "$p" -F -d roce_lo -D 4 -s 4096 || return 1
		kill -9 $(brokers) || return 1
		wait "$client" && wait "$server" && return 0
		said_by_both
		return 1
	}
	check "$p: the broker is killed under load, both go on and finish" broker_dies
	check "a new pair starts afterwards" pair ib_send_lat -F -d roce_lo -n 100
done
one_broker() { [ "$(brokers | wc -w)" = 1 ]; }
check "there is one broker again" wait_for 30 one_broker
kill $keeper
wait $keeper 2>/dev/null
finish

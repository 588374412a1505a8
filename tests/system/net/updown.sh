#!/bin/bash
# updown.sh - an interface goes down for a moment: transfers continue correctly as long as retries are left
# follows: IBA volume 1, 9.7.6 (transport timer)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
LIMIT=110
hosts || exit 1
compile_verify || exit 1
# Retries for half a minute
work_on() { "start_$1" "$work/verify" -d $DEV -g $V4 -n 100000000000 -S 100 -T 18 -R 7; }
ended() { ! kill -0 "$server" 2>/dev/null || ! kill -0 "$client" 2>/dev/null; }
flows() { ended || [ "$(came $B)" -ge "$until" ]; }
stop_both() {
	kill "$client" "$server" 2>/dev/null
	wait "$client" "$server" 2>/dev/null
}
survives() { # NAMESPACE: sets $lasted, the seconds without the interface
	local since
	lasted=0
	work_on server && work_on client || return 1
	until=$(($(came $B) + 2000000))
	wait_for 30 flows
	ended || [ "$(came $B)" -lt "$until" ] && { echo "nothing goes over the cable yet"; said_by_both; stop_both; return 1; }
	since=$SECONDS
	ip -n "$1" link set net0 down
	sleep 1.5
	ip -n "$1" link set net0 up
	lasted=$((SECONDS - since))
	until=$(($(came $B) + 2000000))
	wait_for 40 flows
	local status=0
	ended && { status=1; said_by_both; }
	[ "$(came $B)" -ge "$until" ] || { status=1; echo "nothing goes over the cable any more"; }
	[ $status = 0 ] || echo "the interface was away for $lasted s"
	stop_both
	return $status
}
# A busy kernel takes ten seconds and more to set an interface down: an outage longer than the retries proves nothing
in_time() { # NAMESPACE
	local _
	for _ in 1 2 3 4; do
		survives "$1" && return 0
		[ $lasted -ge 20 ] || return 1
	done
	return 1
}
for _ in 1 2; do
	check "the client's interface goes down and up" in_time $A
	check "the server's interface goes down and up" in_time $B
done
finish

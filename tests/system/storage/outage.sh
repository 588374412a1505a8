#!/bin/bash
# outage.sh - a network outage between two hosts: the last written data stays, although the first write was sent twice
# follows: verbena_nvme.h, "Reconnects"; nft(8)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../net/lib.sh"
source "$(dirname "$0")/medium.sh"
TARGET=$BUILD/storage/verbena-target CLIENT=$BUILD/tests/system/storage/storage_client_outage
[ -x "$TARGET" ] && [ -x "$CLIENT" ] || { skip outage "verbena-target is not built"; exit 0; }
NQN=nqn.2026-01.test:outage
check "two hosts" eval 'hosts && medium_joins $B'

nft() { ip netns exec $B nft "$@"; }
down() { nft add table inet down && nft add chain inet down in '{ type filter hook input priority 0; }' && nft add rule inet down in iifname net0 meta l4proto '{ tcp, udp }' drop; }
up() { nft delete table inet down; }
only() { nft flush chain inet down in && { [ -z "$1" ] || nft add rule inet down in iifname net0 tcp sport "{ $1 }" drop; }; } # SOURCE-PORTS are still cut off
if ! down 2>"$work/said" || ! up; then
	skip outage "nft: $(tail -1 "$work/said")"
	exit 0
fi

speaks() { grep -qs ^nvme "$work/target.out" || gone "$1"; }
said() { grep -qsx "$1" "$work/client.out" || gone "$client"; }
# Data that the kernel still tries to send for a connection that the client has closed, except the FIN
unsent() { ip netns exec $A cat /proc/net/tcp /proc/net/tcp6 | awk '$4 ~ /^(04|09|0B)$/ && $5 !~ /^0000000[01]:/ { n++ } END { exit !n }'; }
all_sent() { ! unsent; }
# Source ports of established connections with nothing waiting to be sent
idle() { ip netns exec $A cat /proc/net/tcp | awk '$4 == "01" && $5 ~ /^00000000:/ { split($2, at, ":"); print "0x" at[2] }' | paste -sd,; }
# TCP retries after 0.2 s, and doubles that time with each retry. The network returns just after a useless retry of both
# TCP and the client, and before the next one. The end of the admin queue would end the target's side of that
# connection, so it is blocked.
away() {
	local rest
	down || return 1
	echo >&7
	wait_for 20 said sent || return 1
	sleep 0.3
	rest=$(idle)
	sleep 3
	only "$rest"
}
begin_target() { # TRANSPORT: sets $target; messages to a client go through $work/line
	rm -f "$work"/{target,client}.{out,err} "$work/line"
	mkfifo "$work/line" && medium memory 16M || return 1
	timeout -k 30 $((120 * SLOW)) "${on_b[@]}" "${run[@]}" "$TARGET" --export "$medium" --listen $V4_B --port 4420 --nqn $NQN --transport "$1" \
		>"$work/target.out" 2>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 speaks $target
}
last_write_stays() { # SCHEME TRANSPORT
	local target client status=0
	begin_target "$2"
	timeout -k 2 $((110 * SLOW)) "${on_a[@]}" "${run[@]}" "$CLIENT" "nvme+$1://$V4_B/$NQN" >"$work/client.out" 2>"$work/client.err" <"$work/line" &
	client=$!
	exec 7>"$work/line"
	wait_for 40 said begun && away && wait_for 60 said answered && wait_for 60 all_sent || status=1
	sleep 0.5 # time for the target to execute what has arrived
	{ echo >&7; } 2>/dev/null
	exec 7>&-
	wait $client || status=1
	kill $target
	wait $target || status=1
	up
	[ $status = 0 ] || cat "$work"/{client,target}.{out,err}
	return $status
}
# Writes of a killed program that the network had not delivered do not follow another program's writes
killed_is_over() { # SCHEME TRANSPORT
	local target client status=0 url="nvme+$1://$V4_B/$NQN"
	begin_target "$2"
	"${on_a[@]}" "${run[@]}" "$CLIENT" "$url" >"$work/client.out" 2>"$work/client.err" <"$work/line" &
	client=$!
	exec 7>"$work/line"
	wait_for 40 said begun && down && echo >&7 && wait_for 20 said sent || status=1
	sleep 0.3
	kill -9 "$(program_of $client)"
	exec 7>&-
	wait $client
	sleep 3
	up
	disk() { timeout -k 2 $((60 * SLOW)) "${on_a[@]}" "${run[@]}" "$BUILD/storage/verbena-disk" "$@"; }
	[ $status = 0 ] && head -c 4096 /dev/zero | tr '\0' B | disk write "$url" 0 && wait_for 60 all_sent || status=1
	sleep 0.5
	[ "$(disk read "$url" 0 4096 | tr -d B | wc -c)" = 0 ] || { echo "the killed program's write came last"; status=1; }
	kill $target
	wait $target || status=1
	[ $status = 0 ] || cat "$work"/{client,target}.{out,err}
	return $status
}
check "by TCP a write that was sent again does not come once more" last_write_stays tcp tcp
check "… nor by RoCE" last_write_stays rdma rdma
VERBENA_DEVICES=iwarp:net0 check "… nor by iWARP" last_write_stays rdma rdma
check "by TCP nothing comes of a program that was killed" killed_is_over tcp tcp
check "… nor by RoCE" killed_is_over rdma rdma
finish

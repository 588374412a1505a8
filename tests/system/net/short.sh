#!/bin/bash
# short.sh - short packets by a packet socket's ring: used where it may be, not where it may not, and right at its changes
# follows: docs/roce.md, "Short packets without system calls"; packet(7)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
need ib_send_lat setpriv
check "two hosts" hosts
compile_verify || exit 1
export VERBENA_LOG=info
said='come by the ring of a packet socket'

# one end at least: on a busy machine a program that polls is held up, and its progress thread takes over
one_uses() { grep -qs "$said" "$work/server.out" "$work/client.out"; }

# laps 1|0: a ping-pong succeeds, and an end of it uses a ring, or none
laps() {
	local want=$1 n
	pair ib_send_lat -F -C -d $DEV -u 18 -x $V4 -s 8 -n 20000 || { said_by_both; return 1; }
	n=0
	! one_uses || n=1
	[ $n = "$want" ] && return 0
	echo "an end uses a ring: $n"
	said_by_both
	return 1
}
off() { VERBENA_RING=off "$@"; }
without_right() {
	local run=(setpriv --bounding-set -net_raw --inh-caps -net_raw "${run[@]}")
	"$@"
}
older() { ! printf '6.2\n%s\n' "$(uname -r)" | sort -VC; }

if older; then
	skip "a ring of a packet socket" "before Linux 6.2 there is none"
	finish
fi
check "a ping-pong uses a ring" laps 1
check "IPv6: the same" eval 'V4=$V6 laps 1'
check "VERBENA_RING=off: it uses none" off laps 0
check "without CAP_NET_RAW: none" without_right laps 0

# verifies ARGS…: every byte of sends, writes, reads and atomics of all sizes
verifies() {
	local status=0
	start_server "$work/verify" -d $DEV -g $V4 "$@" || { said_by_both; return 1; }
	start_client "$work/verify" -d $DEV -g $V4 "$@"
	wait "$client" || status=1
	wait "$server" || status=1
	[ $status = 0 ] && return 0
	said_by_both
	return 1
}
LIMIT=120
without_ring() { "$@" && ! one_uses; }
check "rc: short and long messages, mixed" verifies -n 20000000
check "rc: all short" verifies -S 100 -n 4000000
for t in uc ud; do # they need their packets in order
	check "$t: short and long messages, mixed, without a ring" without_ring verifies -t $t -n 20000000 -L 20
	check "$t: all short, without a ring" without_ring verifies -t $t -S 100 -n 4000000 -L 20
done

# killed: a program that has a ring is killed; the next holder of its lane gets short packets without one
killed() {
	local i
	for i in 1 2 3; do
		start_server "$work/verify" -d $DEV -g $V4 -S 100 -n 4000000000 || return 1
		start_client "$work/verify" -d $DEV -g $V4 -S 100 -n 4000000000
		wait_for 60 one_uses || { said_by_both; return 1; }
		kill -9 $(program_of $server) $(program_of $client)
		wait $server $client
		off laps 0 || return 1
	done
}
check "a killed holder's filter does not stay on its lane" killed

# IPsec: short packets of associations are not in a ring
xfrm() { ip -n $A xfrm "$@" && ip -n $B xfrm "$@"; }
esp() { # add|delete: all between the hosts, transport mode, without encryption
	local n d spi
	for n in $A $B; do
		for d in "$V4_A $V4_B 1" "$V4_B $V4_A 2"; do
			read -r from to spi <<<"$d"
			if [ $1 = add ]; then
				ip -n $n xfrm state add src $from dst $to proto esp spi $spi mode transport auth 'hmac(sha256)' 0x0102030405060708 enc 'ecb(cipher_null)' '' &&
					ip -n $n xfrm policy add src $from dst $to dir $( ([ $n = $A ] && [ $from = $V4_A ]) || ([ $n = $B ] && [ $from = $V4_B ]) && echo out || echo in) \
						tmpl proto esp mode transport || return 1
			fi
		done
	done
	[ $1 = add ] || { xfrm policy flush && xfrm state flush; }
}
if esp add 2>"$work/xfrm"; then
	check "with IPsec no end uses a ring" laps 0
	esp flush
	# it begins while rings are in use
	begins() {
		local status=0
		start_server "$work/verify" -d $DEV -g $V4 -S 100 -n 60000000 -T 21 || return 1
		start_client "$work/verify" -d $DEV -g $V4 -S 100 -n 60000000 -T 21
		wait_for 20 one_uses && esp add || status=1
		wait "$client" || status=1
		wait "$server" || status=1
		esp flush
		[ $status = 0 ] || said_by_both
		return $status
	}
	check "IPsec begins: programs with rings go on" begins
else
	esp flush
	skip "IPsec" "this kernel has none: $(head -1 "$work/xfrm")"
fi

# the interface of one host goes down, and another of its kind takes its place
down_and_up() {
	local status=0
	start_server "$work/verify" -d $DEV -g $V4 -S 100 -n 60000000 -T 21 || return 1
	start_client "$work/verify" -d $DEV -g $V4 -S 100 -n 60000000 -T 21
	wait_for 20 one_uses || status=1
	ip -n $B link set net0 down
	sleep 0.5
	ip -n $B link set net0 up
	ip -n $B addr add $V6_B/64 dev net0 nodad
	wait "$client" || status=1
	wait "$server" || status=1
	[ $status = 0 ] || said_by_both
	return $status
}
check "the interface goes down and up: programs with rings go on" down_and_up
finish

#!/bin/bash
# wire.sh - VERBENA_WIRE=always on a simulated fabric: each packet goes through the fabric process, switch by switch
# follows: IBA volume 1, 7.7 (LRH), 7.8 (VCRC), 16.1.3.5 (PortCounters); perftest(1), ibv_rc_pingpong(1), man/verbena-fabric.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
LIMIT=60
export VERBENA_WIRE=always
start_fabric --generate fat-tree:3,2,2
sm host1 &
manager=$!
check "opensm brings up the fabric" wait_for 30 all_active

dropped() { ctl stat | awk -v n="dropped_$1" '$1 == n { print $2 }'; } # REASON
counter() { ctl counters "$1" "$2" | awk -v n="$3" '$1 == n { print $2 }'; } # NODE PORT NAME
ports_sum() { # NAME: of all ports of all switches
	local n p
	for n in leaf3 leaf4 leaf5 spine1 spine2; do
		for p in 1 2 3 4; do counter "$n" "$p" "$1" 2>/dev/null; done
	done | awk '{ sum += $1 } END { print sum + 0 }'
}

# --- programs by LID ---
captured() { # COMMAND…: what passes host5's cable meanwhile, and a question to it
	local capture rc=0
	"$FABRIC" ctl capture host5 1 >"$work/link.pcap" & # no function, so that the job is the program
	capture=$!
	begun() { [ -s "$work/link.pcap" ]; }
	wait_for 5 begun
	"$@" && on host2 smpquery nodeinfo "$(lid_of host5)" >"$work/tool" || rc=1
	answer_is_there() { LC_ALL=C grep -qaP '\x01\x01\x01\x81' "$work/link.pcap"; } # a GetResp by LID, which is behind all else
	wait_for 10 answer_is_there
	kill $capture
	wait $capture
	return $rc
}
check "RC: ibv_rc_pingpong" captured pair host2 host5 ibv_rc_pingpong -d ib0 -n 100 -c
dissected() { # opcodes of RC SENDs, and SMPs for NodeInfo, none malformed
	tshark -n -r "$work/link.pcap" -T fields -e infiniband.lrh.vl -e infiniband.bth.opcode -e infiniband.mad.attributeid -e _ws.malformed >"$work/seen" 2>"$work/tool" || return 1
	awk -F"\t" '$1 == "0x00" && $2 <= 4 { data++ } $1 == "0x0f" && $3 == "0x0011" { mads++ } $4 { bad++ } END { exit !(data >= 200 && mads >= 2 && !bad) }' "$work/seen" && return 0
	sort "$work/seen" | uniq -c | sort -rn | head -20
	return 1
}
if command -v tshark >/dev/null; then
	check "tshark dissects the packets and MADs of a cable" dissected
else
	skip "tshark dissects the packets and MADs of a cable" "tshark is not installed"
fi
check "RC with a GRH" pair host2 host5 ibv_rc_pingpong -d ib0 -n 100 -g 0 -c
check "UC: ibv_uc_pingpong" pair host2 host5 ibv_uc_pingpong -d ib0 -n 100
check "UD: ibv_ud_pingpong" pair host2 host5 ibv_ud_pingpong -d ib0 -n 100 -c
check "UD with a GRH" pair host2 host5 ibv_ud_pingpong -d ib0 -n 100 -g 0
check "SRQ: ibv_srq_pingpong" pair host2 host5 ibv_srq_pingpong -d ib0 -n 100
check "XRC: ibv_xsrq_pingpong" pair host2 host5 ibv_xsrq_pingpong -d ib0 -n 100
check "events: ibv_rc_pingpong -e" pair host2 host5 ibv_rc_pingpong -d ib0 -n 100 -e
check "both programs on one host" pair host2 host2 ibv_rc_pingpong -d ib0 -n 100
check "ib_send_bw of UD" pair host2 host5 ib_send_bw -d ib0 -n 500 -s 2048 -c UD
check "ib_write_bw of UC" pair host2 host5 ib_write_bw -d ib0 -n 100 -c UC
check "ib_read_bw" pair host2 host5 ib_read_bw -d ib0 -n 100
check "ib_atomic_lat" pair host2 host5 ib_atomic_lat -d ib0 -n 100
check "ib_send_lat with inline data and an SL" pair host2 host5 ib_send_lat -d ib0 -n 100 -S 3

# --- five hosts and one ---
(cd "$ROOT/tests/system/net" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/verify" verify.c plan.c link.c -libverbs) || exit 1
many_to_one() { # ARGS…: pairs, whose servers are all on host5. Its cable is the slowest part of each way
	local n pids=() rc=0
	ctl link host5 1 rate=400 || return 1
	for n in 1 2 3 4 6; do
		(
			trap - EXIT
			work=$work/many-$n
			mkdir -p "$work"
			RANDOM=$((BASHPID + n))
			pair host5 host$n "${work%/*}/verify" -d ib0 -g 0 -e -S $((60 * SLOW)) "$@" >"$work/said" 2>&1
		) &
		pids+=($!)
	done
	for n in "${pids[@]}"; do wait "$n" || rc=1; done
	ctl link host5 1 rate=0 || rc=1
	[ $rc = 0 ] || cat "$work"/many-*/said
	return $rc
}
check "five hosts and one, whose cable is slow: all data is right" many_to_one -n 2000000
check "... and datagrams: none is lost" many_to_one -t ud -n 500000 -L 0

# --- each packet passes each port ---
counts() {
	local before after want=$((500 * 32)) data=$((500 * (65536 + 32 * 24 + 16) / 4)) first
	first=$(counter host5 1 xmit_pkts) before=$(ports_sum xmit_data)
	pair host2 host5 ib_write_bw -d ib0 -n 500 -s 65536 || return 1
	after=$(($(counter host5 1 xmit_pkts) - first))
	[ "$after" -ge $want ] && [ "$after" -lt $((want + 3000)) ] || { echo "host5 sent $after packets"; return 1; }
	# a leaf, a spine, a leaf
	after=$((($(ports_sum xmit_data) - before) / 3))
	[ "$after" -ge "$data" ] && [ "$after" -lt $((data * 11 / 10)) ] || { echo "switches sent $after words of $data"; return 1; }
}
check "the ports of the hosts and of all switches on the way count packets and bytes" counts

# --- a queue pair that hardly posts receives ---
hardly_posts() {
	"${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/receives" "$ROOT/tests/system/fabric/receives.c" -libverbs && on host2 "$work/receives" >"$work/tool" 2>&1 && return 0
	cat "$work/tool"
	return 1
}
check "a UD queue pair that hardly posts receives does not hold up its neighbour" hardly_posts

# --- links that take time ---
takes_time() { # 3 ms there and 3 ms back; 100 Mb/s are 12.5 MB/s
	local rc=0
	ctl link host5 1 latency=3000 || return 1
	pair host2 host5 ib_send_lat -d ib0 -n 10 -u 18 && awk '$1 == 2 && NF > 6 { exit !($3 >= 3000) }' "$work/client.out" || { cat "$work/client.out"; rc=1; }
	ctl link host5 1 rate=100 || rc=1
	pair host2 host5 ib_write_bw -d ib0 -n 30 -s 65536 -u 18 && awk '$1 == 65536 { exit !($4 > 0 && $4 <= 12.5) }' "$work/client.out" || { cat "$work/client.out"; rc=1; }
	ctl link host5 1 rate=0 || rc=1
	return $rc
}
check "a cable has a latency, then a rate" takes_time

streams_whole() { # DATAGRAMS RATE PAUSE_MS: the sender is faster than the cable, and the receiver rests for a while
	local receiver lid qpn rc=0
	ctl link host5 1 rate="$2" || return 1
	rm -f "$work/receiver"
	VERBENA_NODE=host2 timeout -k 2 $((40 * SLOW)) "${run[@]}" "$work/flood" receive "$1" "$3" >"$work/receiver" 2>&1 &
	receiver=$!
	wait_for 10 grep -qs ' ' "$work/receiver" || rc=1
	read -r lid qpn <"$work/receiver"
	on host5 "$work/flood" send "$lid" "$qpn" "$1" || rc=1
	wait $receiver || rc=1
	cat "$work/receiver"
	ctl link host5 1 rate=0 || rc=1
	return $rc
}
if "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/flood" "$ROOT/tests/system/fabric/flood.c" -libverbs; then
	check "datagrams that are sent faster than a cable takes them arrive, all and in order" streams_whole 6000 100 0
	check "a receiver that rests for a while loses none" streams_whole 6000 200 100
else
	check "flood.c is built" false
fi

# --- damage ---
repaired() { # RULE COUNTER: of packets that the client sends
	local before
	before=$(dropped "$2")
	VERBENA_NODE=host2 start_server ib_write_bw -d ib0 -n 300
	VERBENA_FAULT=$1 VERBENA_NODE=host5 start_client ib_write_bw -d ib0 -n 300
	wait "$client" && wait "$server" && [ "$(dropped "$2")" -gt "$before" ] && return 0
	ctl stat
	said_by_both
	return 1
}
check "a wrong VCRC is dropped by the first switch, and RC repeats" repaired 'corrupt every=50' bad_vcrc
errors_counted() {
	[ "$(ports_sum rcv_errors)" -gt 0 ]
}
check "its port has counted receive errors" errors_counted

# --- the fabric process is stopped ---
stopped_cases() {
	(cd "$ROOT/tests/system/fabric" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/stopped" stopped.c -libverbs) || return 1
	VERBENA_NODE=host3 timeout -k 2 $((120 * SLOW)) "${run[@]}" "$work/stopped" "$fabric"
}
check "calls end while the fabric process is stopped, also those for queue pairs with requests" stopped_cases

# --- accidents in the middle ---
check "a switch on the way goes off, opensm leads around it, and traffic goes on" goes_on_without_spine host2 host5
check "a cable is pulled: the retries end" ends_with host2 host5 ctl link host5 1 down
ctl link host5 1 up
host5_active() { ctl show host5 | grep -q Active; }
check "the cable is back" wait_for 20 host5_active
stopped() { # a receiver that does not read: its queue fills, its packets are discarded, others go on
	local before from rc=0
	before=$(dropped queue_full) from=$(counter host5 1 xmit_pkts)
	VERBENA_NODE=host2 start_server ib_write_bw -d ib0 -D 12 -c UC -s 65536
	VERBENA_NODE=host5 start_client ib_write_bw -d ib0 -D 12 -c UC -s 65536
	sends() { [ "$(counter host5 1 xmit_pkts)" -gt $((from + 1000)) ]; }
	wait_for 5 sends || rc=1
	kill -STOP "$(program_of "$server")" || rc=1
	full() { [ "$(dropped queue_full)" -gt "$before" ]; }
	wait_for 5 full || { ctl stat; said_by_both; rc=1; }
	kill -9 "$(program_of "$server")" "$(program_of "$client")" 2>/dev/null
	wait "$server" "$client"
	pair host3 host4 ibv_rc_pingpong -d ib0 -n 100 || rc=1
	return $rc
}
check "a program that is stopped: its queue is bounded, others go on" stopped
check "a program is killed while it writes: its peer's retries end" peer_dies host2 host5
check "the fabric process is killed: the retries end" ends_with host2 host5 kill -9 "$fabric"
kill "$(program_of "$manager")" 2>/dev/null
check "it is started again: programs that start then talk" fabric_again host2 host5 --generate fat-tree:3,2,2
kill "$(program_of "$manager")" 2>/dev/null
check "the fabric ends" stop_fabric
wait
finish

#!/bin/bash
# hosts.sh - a fabric of two processes on two hosts, joined by UDP: one opensm, programs across, a cable that is cut, a restart
# follows: man/verbena-fabric.8; ibnetdiscover(8), ibv_rc_pingpong(1), rping(1), ip-netns(8)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../net/lib.sh"
need opensm ibnetdiscover perfquery ib_send_bw rping python3
LIMIT=60
FABRIC=$BUILD/src/fabric/verbena-fabric
export VERBENA_NODE=host1
on_a+=("VERBENA_FABRIC=$work/fabric-a" "VERBENA_NODE=host1")
on_b+=("VERBENA_FABRIC=$work/fabric-b" "VERBENA_NODE=host3")
head -c 32 /dev/urandom >"$work/secret"

# A fat tree: one leaf with two hosts, and one spine, on each host
start_part() { # a|b OWN PEER-ADDRESS PEER'S
	local where="on_$1[@]"
	"${!where}" "$FABRIC" --generate fat-tree:2,2,2 --network 10.1.0.0/24 --own "$2" --peer "$3=$4" --secret "$work/secret" \
		--socket "$work/fabric-$1" "${@:5}" >>"$work/part-$1" 2>&1 &
}
start_a() { start_part a leaf3,spine1 $V4_B leaf4,spine2 && part_a=$!; }
start_b() { start_part b leaf4,spine2 $V4_A leaf3,spine1 --guests --listen '[::]' && part_b=$!; } # of IPv4 too
ctl() { # a|b COMMAND
	local where="on_$1[@]"
	"${!where}" "$FABRIC" ctl "${@:2}"
}
is_joined() { ctl a peers | grep -q ' up ' && ctl b peers | grep -q ' up '; }
part_active() { ctl "$1" states | awk '{ exit !($4 == 8 && $12 == 8) }'; }
all_active() { part_active a && part_active b; }
cables_down() { ctl a states | grep -q ' down 2 ' && ctl b states | grep -q ' down 2 '; }

check "two hosts" hosts
start_a
start_b
joined() { wait_for 30 is_joined || { cat "$work"/part-*; return 1; }; }
check "the processes find each other" joined
mkdir "$work/sm"
OSM_CACHE_DIR=$work/sm OSM_TMP_DIR=$work/sm "${on_a[@]}" timeout -k 2 $((250 * SLOW)) "${opensm[@]}" -f "$work/sm/log" >"$work/sm/out" 2>&1 &
manager=$!
check "one opensm brings up both parts" wait_for 60 all_active

# --- the tools see one fabric, from both hosts ---
discovers() { # a|b
	local where="on_$1[@]"
	timeout 30 "${!where}" "${run[@]}" ibnetdiscover >"$work/seen"
	[ "$(grep -c '^Switch' "$work/seen")" = 4 ] && [ "$(grep -c '^Ca' "$work/seen")" = 4 ] && [ "$(grep -c '^\[' "$work/seen")" = 16 ] || {
		cat "$work/seen"
		return 1
	}
}
check "ibnetdiscover on the first host" discovers a
check "ibnetdiscover on the second host" discovers b

# --- programs ---
check "RC: ibv_rc_pingpong by LID" crossing 1000000 pair ibv_rc_pingpong -d ib0 -n 200 -c
check "UC: ibv_uc_pingpong" pair ibv_uc_pingpong -d ib0 -n 50
check "UD: ibv_ud_pingpong" pair ibv_ud_pingpong -d ib0 -n 50 -c
check "ib_send_bw" crossing 6000000 pair ib_send_bw -d ib0 -n 100
check "ib_send_bw of UD" pair ib_send_bw -d ib0 -n 20000 -s 2048 -c UD
one_host() { # shared memory still serves the programs of one host
	local before
	before=$(came $A)
	rm -f "$work/server.out"
	free_port
	"${on_b[@]}" VERBENA_NODE=host4 timeout $((40 * SLOW)) "${run[@]}" ib_write_bw -d ib0 -n 1000 -p "$port" >"$work/server.out" 2>&1 &
	server=$!
	wait_for 30 server_up
	"${on_b[@]}" timeout $((40 * SLOW)) "${run[@]}" ib_write_bw -d ib0 -n 1000 -p "$port" 127.0.0.1 && wait $server &&
		[ $(($(came $A) - before)) -lt 5000000 ]
}
check "programs of one host do not use the network" one_host
rping_listens() { # on the second host
	rm -f "$work/server.out"
	timeout $((40 * SLOW)) "${on_b[@]}" "${run[@]}" stdbuf -oL rping -s -d -C 3 -a 10.1.0.3 >"$work/server.out" 2>&1 &
	server=$!
	wait_for 20 grep -q rdma_listen "$work/server.out"
}
ping_by_name() {
	rping_listens
	timeout $((40 * SLOW)) "${on_a[@]}" "${run[@]}" rping -c -C 3 -a 10.1.0.3 >"$work/client.out" 2>&1 || { said_by_both; return 1; }
	wait $server
	return 0
}
check "rdma_cm: rping by an IP address of the fabric" ping_by_name
check "multicast: perftest joins a group, and its datagrams arrive" pair ib_send_lat -d ib0 -c UD -g -n 50

# --- a program on the first host, with a node of the second one's process ---
mkdir -m 700 "$work/guest"
head -c 32 /dev/urandom >"$work/other"
as_guest() { # NODE SECRET HOST COMMAND…
	"${on_a[@]}" "VERBENA_RUNTIME=$work/guest" "VERBENA_NODE=$1" "VERBENA_FABRIC_SECRET=$2" "VERBENA_FABRIC=udp:$3" \
		timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "${@:4}"
}
is_refused() { # REASON NODE SECRET HOST
	! as_guest "${@:2}" ibstat >"$work/tool" 2>&1 && grep -q "$1" "$work/tool" || { cat "$work/tool"; return 1; }
}
check "a guest with another secret" is_refused 'another secret' host4 "$work/other" $V4_B
check "a guest that wants no node of the fabric" is_refused 'no channel adapter of this name' nobody "$work/secret" $V4_B
check "a guest whose host has no fabric" is_refused 'no fabric process' host4 "$work/secret" $V4_B:4799
two_at_once() {
	local i pids=()
	for i in 1 2; do
		as_guest host4 "$work/secret" $V4_B ibstat >"$work/tool.$i" 2>&1 &
		pids+=($!)
	done
	wait "${pids[@]}"
	cat "$work"/tool.?
	[ "$(grep -l 'State: Active' "$work"/tool.? | wc -l)" = 2 ]
}
check "two programs that start together find the guest's port Active" two_at_once
guest_talks() {
	start_server ibv_rc_pingpong -d ib0 -n 100 -c
	as_guest host4 "$work/secret" $V4_B ibv_rc_pingpong -d ib0 -n 100 -c -p "$port" "$HOST" >"$work/client.out" 2>&1 && wait $server && return 0
	said_by_both
	return 1
}
shell_keeps() { # it uses no device
	as_guest host4 "$work/secret" $V4_B sh -c "'$FABRIC' ctl stat" >"$work/tool" 2>&1 && grep -q 'programs_kept_for *1$' "$work/tool" || { cat "$work/tool"; return 1; }
}
check "the guest's fabric process stays for a shell" shell_keeps
check "a guest's program talks to one of the other host" guest_talks
guest_pings() { # the addresses have come with the topology
	rping_listens
	as_guest host4 "$work/secret" $V4_B rping -c -C 3 -a 10.1.0.3 >"$work/client.out" 2>&1 && wait $server && return 0
	said_by_both
	return 1
}
check "it connects by an IP address" guest_pings
guest_by_file() { # that verbena link has written
	local guest=("${on_a[@]}" env -u VERBENA_FABRIC -u VERBENA_NODE "VERBENA_RUNTIME=$work/guest" "XDG_CONFIG_HOME=$work/guest-config")
	"${guest[@]}" "$VERBENA" link add ib0 type ib fabric "udp:$V4_B" node host4 secret "$work/secret" --user || return 1
	"${guest[@]}" timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" ibstat >"$work/tool" 2>&1 && grep -q 'State: Active' "$work/tool" || { cat "$work/tool"; return 1; }
}
check "a file names the fabric, the node and the secret of a guest" guest_by_file
second_guest() { local work=$work/second; mkdir -p -m 700 "$work/guest" && is_refused 'have this channel adapter' host4 "${work%/second}/secret" $V4_B; }
check "a second guest that wants the same node" second_guest
host4_active() { ctl b show host4 | grep -q Active; }
ends_guest() {
	local socket
	socket=$(echo "$work"/guest/fabric.????????????????)
	no_socket() { [ ! -e "$socket" ]; }
	"${on_a[@]}" "$FABRIC" ctl --socket "$socket" stop && wait_for 10 no_socket
}
guest_again() { ends_guest && as_guest host4 "$work/secret" $V4_B ibstat >"$work/tool" 2>&1 || { cat "$work/tool"; return 1; }; }
check "a guest ends, and another one comes before its node is free" guest_again
guest_ends() { ends_guest && wait_for 20 host4_active; }
check "a guest ends: its node is the other process's again" guest_ends
guest_by_ipv6() { as_guest host4 "$work/secret" "[$V6_B]" ibstat >"$work/tool" 2>&1 && grep -q 'State: Active' "$work/tool" && guest_ends || { cat "$work/tool"; return 1; }; }
check "a guest that reaches the fabric by IPv6" guest_by_ipv6

# --- both ends of a cable have counted the same ---
counter() { ctl "$1" counters "$2" "$3" | awk -v n="$4" '$1 == n { print $2 }'; } # a|b NODE PORT NAME
ends_agree() {
	[ "$(counter a leaf3 4 xmit_pkts)" = "$(counter b spine2 1 rcv_pkts)" ] && [ "$(counter a leaf3 4 rcv_data)" = "$(counter b spine2 1 xmit_data)" ] &&
		[ "$(counter b leaf4 3 xmit_pkts)" = "$(counter a spine1 2 rcv_pkts)" ] && [ "$(counter a spine1 2 rcv_pkts)" -gt 100 ]
}
check "the ports at both ends of a cable have counted the same packets" wait_for 20 ends_agree

# --- strangers ---
forged() {
	"${on_a[@]}" python3 - $V4_A $V4_B <<-'EOF' || return 1
		import os, socket, sys
		s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
		s.bind((sys.argv[1], 4792))
		for kind in range(6):
		    for n in (0, 3, 8, 31, 32, 56, 200, 1400):
		        d = bytes([0x56, 0x46, 1, kind]) + os.urandom(1400)
		        s.sendto(d[:n], (sys.argv[2], 4792))
	EOF
	refused() { [ "$(ctl b peers | sed 's/.* bad_tag \([0-9]*\).*/\1/')" -ge 10 ]; } # those that are long enough
	wait_for 20 refused && all_active || { ctl b peers; return 1; }
}
check "datagrams of a stranger, even from the peer's address, change nothing" forged

# --- accidents ---
traps() { grep -c 'num:128' "$work/sm/log"; }
lost_half() { # opensm knows by the switch's trap
	wait_for 30 cables_down || { ctl a states; ctl b states; return 1; }
	sees_half() { [ "$(timeout 20 "${on_a[@]}" "${run[@]}" saquery NR 2>/dev/null | grep -c 'node_type')" = 4 ]; }
	wait_for 30 sees_half && [ "$(traps)" -gt "$before" ]
}
late_way() { # both ends are RTR before there is a way, which leads through the other process then
	ctl a node spine1 off && ctl b node spine2 off || return 1
	start_server ib_send_lat -d ib0 -n 50 -u 20
	start_client ib_send_lat -d ib0 -n 50 -u 20
	sleep 1
	ctl a node spine1 on && ctl b node spine2 on && wait "$client" && wait "$server" && return 0
	said_by_both
	return 1
}
check "queue pairs that have no way at RTR talk when opensm has found one" late_way
before=$(traps)
ip -n $A link set net0 down
check "the network is cut: the ports go down, and opensm hears it" lost_half
ip -n $A link set net0 up
check "it comes back: opensm brings up all" wait_for 60 all_active
die $part_b
wait_for 10 gone $part_b
start_b
reborn() { wait_for 60 all_active && pair ibv_rc_pingpong -d ib0 -n 50; }
check "a process is killed and started again: opensm brings it up, and programs talk" reborn
kill "$(program_of "$manager")" 2>/dev/null
ctl a stop
ctl b stop
wait
finish

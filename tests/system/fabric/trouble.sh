#!/bin/bash
# trouble.sh - a fabric of two processes on two hosts, joined by UDP over IPv6 and IPv4 and by a bad wire: datagrams are lost,
#   repeated, late and damaged, a process stops, is killed, and comes back; what programs get is right
# follows: man/verbena-fabric.8; IBA volume 1, 9.7.5 (retries)
# SPDX-License-Identifier: MIT
# TROUBLE=long: each kind of trouble by itself, ten times the data
source "$(dirname "$0")/../net/lib.sh"
need opensm
LIMIT=110
FABRIC=$BUILD/src/fabric/verbena-fabric
on_a+=("VERBENA_FABRIC=$work/fabric-a" VERBENA_NODE=host1)
on_b+=("VERBENA_FABRIC=$work/fabric-b" VERBENA_NODE=host3)
head -c 32 /dev/urandom >"$work/secret"
long() { [ "${TROUBLE:-}" = long ]; }
bytes() { long && echo $(($1 * 10)) || echo "$1"; }

start_part() { # a|b OWN PEER PEER'S: a leaf with two hosts, and a spine
	local where="on_$1[@]"
	"${!where}" "$FABRIC" --generate fat-tree:2,2,2 --own "$2" --peer "$3=$4" --secret "$work/secret" --socket "$work/fabric-$1" \
		>>"$work/part-$1" 2>&1 &
}
start_a() { start_part a leaf3,spine1 "$1" leaf4,spine2 && part_a=$!; } # PEER
start_b() { start_part b leaf4,spine2 "$1" leaf3,spine1 && part_b=$!; }
ctl() { # a|b COMMAND
	local where="on_$1[@]"
	"${!where}" "$FABRIC" ctl "${@:2}"
}
part_active() { ctl "$1" states 2>/dev/null | awk '{ exit !($4 == 8 && $12 == 8) }'; }
all_active() { part_active a && part_active b; }
brought_up() { wait_for "$1" all_active || { ctl a peers; ctl b peers; ctl a states; cat "$work"/part-*; return 1; }; }
start_manager() {
	rm -rf "$work/sm" && mkdir "$work/sm"
	printf '%s\n' 'sminfo_polling_timeout 200' >"$work/options"
	OSM_CACHE_DIR=$work/sm OSM_TMP_DIR=$work/sm "${on_a[@]}" timeout -k 2 $((600 * SLOW)) "${opensm[@]}" -F "$work/options" -f "$work/sm/log" \
		>"$work/sm/out" 2>&1 &
	manager=$!
}
end_all() {
	kill "$(program_of "$manager")" 2>/dev/null
	wait "$manager"
	ctl a stop && ctl b stop && wait "$part_a" "$part_b"
}

check "two hosts, and a wire that can be a bad one" bad_hosts 1500 4792
compile_verify || exit 1
verify=("$work/verify" -d ib0 -g 0)
on_wire() { # SETTINGS COMMAND…
	on_cable "$@" || { ctl a peers; ctl b peers; return 1; }
}

# The sockets of both processes are files, so programs of neither host reach them too. Two hosts are those of each process
walk=$BUILD/tests/system/walk/walk
[ -x "$walk" ] || { echo "$walk is missing: make build"; exit 2; }
walks() { # SECONDS ARGS…
	VERBENA_FABRIC=$work/fabric-a VERBENA_NODE=host1 VERBENA_SENDS=random VERBENA_RDMA=random timeout -k 2 $((($1 + 120) * SLOW)) \
		"${own[@]}" "$ROOT/tests/system/walk/run" "$walk" -f -o "$work/fabric-b,3" -p 4 -t 2 -s "$@"
}

# --- IPv6 ---
start_a "[$V6_B]"
start_b "[$V6_A]"
start_manager
check "opensm brings up a fabric whose processes talk by IPv6" brought_up 60
check "RC: all data arrives, and is right" on_wire "" crossing 4000000 pair "${verify[@]}" -n "$(bytes 2000000)"
check "UC" on_wire "" pair "${verify[@]}" -t uc -k send,send-imm,write,write-imm -n "$(bytes 1000000)"
check "UD" on_wire "" pair "${verify[@]}" -t ud -n "$(bytes 500000)" -L 1
check "RC, while datagrams are lost, repeated and late" on_wire "loss=1 dup=2 reorder=2 seed=1" pair "${verify[@]}" -n "$(bytes 500000)"
check "UD: what arrives is right" on_wire "loss=2 dup=5 reorder=5 seed=2" pair "${verify[@]}" -t ud -n "$(bytes 200000)" -L 30
check "a random walk of four hosts, two of each process" on_wire "loss=1 dup=2 reorder=2 seed=3" walks "$(long && echo 120 || echo 4)" -l
if long; then
	check "a random walk whose programs are killed and stopped" on_wire "loss=1 dup=1 reorder=1 seed=3" walks 120 -l -k
	n=2
	for trouble in loss=1 loss=5 reorder=5 dup=5 "loss=2 dup=5 reorder=5"; do
		n=$((n + 1))
		check "RC, $trouble" on_wire "$trouble seed=$n" pair "${verify[@]}" -n 5000000
	done
	for kinds in read,read-back write add,swap send,send-imm write,write-imm; do
		check "RC, $kinds" on_wire "loss=2 dup=2 reorder=2 seed=9" pair "${verify[@]}" -k $kinds -n $([ $kinds = add,swap ] && echo 50000 || echo 2000000)
	done
fi
check "the fabric ends" end_all

# --- IPv4; the wire is bad from the start, and damages what the kernel's checksum does not see ---
cable loss=3 dup=3 reorder=3 corrupt=3 seed=4
start_a $V4_B
start_b $V4_A
start_manager
check "opensm brings up a fabric over a bad wire" brought_up 90
check "RC, while datagrams are damaged too" on_wire "loss=1 dup=1 reorder=1 corrupt=1 seed=5" pair "${verify[@]}" -n "$(bytes 500000)"
damage_seen() { ctl a peers | grep -q ' bad_tag [1-9]' || ctl b peers | grep -q ' bad_tag [1-9]' || { ctl a peers; ctl b peers; return 1; }; }
check "the processes have dropped what was damaged" damage_seen

# --- a process that stops, and one that is killed, in the middle ---
spent="transport retry counter exceeded"
running() { # starts an endless pair, and waits until data flows
	local at
	start_server "${verify[@]}" -n 100000000000 -S 300 "$@" && start_client "${verify[@]}" -n 100000000000 -S 300 "$@" || return 1
	at=$(($(came $B) + 1000000))
	flows() { gone "$client" || gone "$server" || [ "$(came $B)" -ge $at ]; }
	wait_for 30 flows && ! gone "$client" && ! gone "$server" && return 0
	said_by_both
	return 1
}
stop_both() { kill "$client" "$server" 2>/dev/null; wait "$client" "$server"; }
goes_on() { # data flows, and both are content
	local at=$(($(came $B) + 1000000))
	flows() { gone "$client" || gone "$server" || [ "$(came $B)" -ge $at ]; }
	wait_for 40 flows && ! gone "$client" && ! gone "$server"
}
rests() { # for less than the two seconds after which its cables go down
	local rc=0
	running || { stop_both; return 1; }
	kill -STOP "$part_b"
	sleep 1
	kill -CONT "$part_b"
	goes_on || { said_by_both; rc=1; }
	stop_both
	all_active && return $rc
}
check "a process rests for a second: the data is right, and goes on" rests
away() { # opensm brings the cables up again before the retries end
	local rc=0
	running -T 20 || { stop_both; return 1; }
	cable cut=1
	sleep 3
	cable
	goes_on || { said_by_both; rc=1; }
	stop_both
	brought_up 30 && return $rc
}
check "the wire is cut for three seconds: the data is right, and goes on" away
killed() { # both ends get what a cut cable gives, and nothing wrong
	local rc=0 who s
	running -T 16 -R 4 -q 5 || { stop_both; return 1; }
	kill -9 "$part_b"
	wait "$part_b"
	for who in server client; do
		wait "${!who}"
		s=$?
		[ $s = 3 ] && grep -q "$spent" "$work/$who.out" || { echo "$who ended with $s"; rc=1; }
	done
	[ $rc = 0 ] || said_by_both
	start_b $V4_A
	return $rc
}
check "a process is killed: both ends learn that their retries are spent" killed
again() { brought_up 60 && pair "${verify[@]}" -n "$(bytes 1000000)"; }
check "it is started again: opensm brings it up, and all data is right" again
check "the fabric ends" end_all
finish

#!/bin/bash
# manager.sh - what a subnet manager does on a simulated fabric besides routing: keys, quality of service, traps, reports
#   to programs, handover, several LIDs a port; ports that go up and down, and a time without a manager
# follows: IBA volume 1, 13.4.11 (event forwarding), 14.2.4 (M_Key), 14.4 (subnet managers), 7.11 (LMC); opensm(8)
# SPDX-License-Identifier: MIT
# MANAGER=long: the subnet manager is away for two minutes, and a port babbles until the manager disables it
source "$(dirname "$0")/../../support/fabric.sh"
HERE=$ROOT/tests/system/fabric
for program in reports lids; do
	(cd "$HERE" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/$program" $program.c member.c -libverbs -libumad) || exit 1
done
(cd "$ROOT/tests/system/net" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/verify" verify.c plan.c link.c -libverbs) || exit 1
long() { [ "${MANAGER:-}" = long ]; }
key=0x1122334455667788
printf '%s\n' 'sminfo_polling_timeout 200' 'polling_retry_number 2' >"$work/quick"
cat "$work/quick" - >"$work/options" <<-OPTIONS
	sweep_interval 1
	m_key $key
	m_key_protection_level 2
	m_key_lease_period 2
	m_key_lookup FALSE
	babbling_port_policy TRUE
	qos TRUE
	qos_max_vls 4
	qos_high_limit 1
	qos_vlarb_high 0:64,1:32
	qos_vlarb_low 2:4,3:8
	qos_sl2vl 0,1,2,3,3,2,1,0,0,1,2,3,0,1,2,3
OPTIONS
lid_in() { ctl show "$1" | grep -o ' lid [0-9]*' | head -1 | tr -dc 0-9; } # NODE: also where a key keeps tools out
says() { # PATTERN PROGRAM ARGS…: host2 runs it
	on host2 "${@:2}" >"$work/tool" 2>&1 && grep -qE "$1" "$work/tool" || { cat "$work/tool"; return 1; }
}
start_fabric --generate fat-tree:2,2,2
sm host1 -F "$work/options" -p 5 &
manager=$!
check "opensm brings up a fabric, with M_Keys and quality of service" wait_for 30 all_active
host=$(lid_in host3) leaf=$(lid_in leaf4)

# --- the M_Key ---
answered() { on host2 smpquery -t 100 nodeinfo "$host" >"$work/tool" 2>&1; }
keeps_out() { ! answered; }
check "a port does not answer a request without its M_Key" keeps_out
check "... and answers one with it" says 'Channel Adapter' smpquery -y $key nodeinfo "$host"
check "the manager gets trap 256" wait_for 10 log_has host1 "num:256 (Bad M_Key).*LID:$host "

# --- quality of service ---
check "the manager writes a host's SLtoVL table" says '^ports: in  0, out  0: \| 0\| 1\| 2\| 3\| 3\| 2\| 1\| 0\|' smpquery -y $key sl2vl "$host"
check "... and a switch's" says '^ports: in  3, out  1: \| 0\| 1\| 2\| 3\| 3\| 2\| 1\| 0\|' smpquery -y $key sl2vl "$leaf" 1
check "... and the weights of their lanes" says '^WEIGHT: \|0x40\|0x20\|' smpquery -y $key vlarb "$leaf" 1

# --- traps by command: opensm logs 129 to 131, and forwards none of them ---
trap_is_logged() { ctl trap "$1" "$2" "$3" && wait_for 10 log_has host1 "num:$3 .*LID:$4 Port $2 "; }
for trap in 129 130 131; do
	check "trap $trap of a host reaches the manager" trap_is_logged host3 1 $trap "$host"
	check "... and of a switch's port" trap_is_logged leaf4 2 $trap "$leaf"
done
other_trap() { ! ctl trap host3 1 128 >"$work/tool" 2>&1 && grep -q '129, 130, 131, 144' "$work/tool"; }
check "a trap that a command cannot make is refused" other_trap
babbles() {
	for _ in $(seq 300); do ctl trap host4 1 129 || return 1; done
	wait_for 10 host4_is_down && ctl link leaf4 2 up
}
host4_is_down() { ctl show host4 | grep -q ' Down '; }
! long || check "the manager disables a port that babbles" babbles

# --- another manager with a higher priority; the first one hands over ---
sm host2 -F "$work/options" -p 9 &
second=$!
check "a manager with a higher priority becomes the master" wait_for 30 log_has host2 'Entering MASTER'
check "... and the first one stands by" wait_for 10 log_has host1 'Entering STANDBY'
check "... and all ports know the new one" wait_for 10 says "sm lid $(lid_in host2) .*priority 9 .*MASTER" sminfo -y $key
is_sm() { on host2 smpquery -y $key portinfo "$(lid_in host1)" | grep -q 'IsSM$'; }
is_no_sm() { ! is_sm; }
check "the port of a manager is a manager's" is_sm
kill -9 "$(program_of $manager)"
{ wait $manager; } 2>/dev/null
check "... until the manager dies" wait_for 10 is_no_sm
kill -9 "$(program_of $second)"
{ wait $second; } 2>/dev/null
check "the M_Key keeps nobody out when its lease has ended without a manager" wait_for 10 answered
check "the fabric ends" stop_fabric

# --- ports that go up and down; no manager for a time ---
start_fabric --generate fat-tree:2,2,2
rm -rf "$work"/sm-*
sm host1 -F "$work/quick" &
manager=$!
check "opensm brings up a fabric without keys" wait_for 30 all_active
VERBENA_NODE=host2 "${run[@]}" timeout -k 2 $((60 * SLOW)) "$work/reports" "$FABRIC" leaf4 2>"$work/said" | sed 'y/_/ /'
[ "${PIPESTATUS[0]}" = 0 ] || { echo "not ok reports to a subscriber"; sed 's/^/	/' "$work/said"; failed=$((failed + 1)); }
flaps() { # the last of the cases with traps: opensm forwards no trap that has come more than ten times
	for _ in 1 2 3 4 5; do
		ctl link leaf4 1 down && ctl link leaf4 1 up || return 1
	done
	wait_for 20 all_active
}
check "a port that has gone up and down becomes Active in the end" flaps
sweeps() { log_has host1 'SUBNET UP'; }
flows() { # data, on which both ends agree, after what host3 has sent so far
	local words
	words=$(words_of host3)
	moves() { gone "$server" || gone "$client" || has_sent host3 $((words + 100000)); }
	wait_for 20 moves && ! gone "$server" && ! gone "$client"
}
away() { # data flows while there is no manager, and when it is back: a wrong byte would end both ends
	local seconds=2 rc=0 endless=("$work/verify" -d ib0 -g 0 -e -n 100000000000000 -S 1000)
	! long || seconds=120
	VERBENA_NODE=host2 start_server "${endless[@]}"
	VERBENA_NODE=host3 start_client "${endless[@]}"
	flows || { echo "nothing flows"; rc=1; }
	kill -9 "$(program_of $manager)"
	{ wait $manager; } 2>/dev/null
	sleep $seconds
	flows || { echo "nothing flows without a manager"; rc=1; }
	rm -f "$work/sm-host1/log"
	sm host1 -F "$work/quick" &
	manager=$!
	wait_for 20 sweeps && wait_for 10 all_active || { echo "the new manager does not bring up the fabric"; ctl states; rc=1; }
	flows || { echo "nothing flows with a new manager"; rc=1; }
	[ $rc = 0 ] || said_by_both
	kill "$client" "$server"
	wait "$client" "$server"
	return $rc
}
LIMIT=200
check "programs go on while there is no manager, and when it is back: all data is right" away
away_by_packets() { VERBENA_WIRE=always away; }
check "... packet by packet too" away_by_packets
kill "$(program_of $manager)"
{ wait $manager; } 2>/dev/null
stop_fabric

# --- several LIDs a port ---
start_fabric --generate fat-tree:2,2,2
rm -rf "$work"/sm-*
sm host1 -F "$work/quick" -l 2 &
check "opensm brings up a fabric with four LIDs a port" wait_for 30 all_active
spine_of() { on host2 ibtracert "$(lid_in host1)" $(($(lid_in host3) + $1)) | grep -o 'spine[0-9]*' | head -1; } # PATH
first=$(spine_of 0) last=$(spine_of 3)
two_ways() { [ -n "$first" ] && [ -n "$last" ] && [ "$first" != "$last" ]; }
check "they lead by different spines" two_ways
check "the port shows them" says "port_lmc:.*0x02" ibv_devinfo -v -d ib0
path_to_last() { says "dlid\.*$(($(lid_in host3) + 3))$" saquery --src-to-dst "$(lid_in host1):$(($(lid_in host3) + 3))"; }
check "the manager has a path to the last one" path_to_last
data_of() { ctl counters "$1" 2 | awk '$1 == "xmit_data" { print $2 }'; } # SPINE: towards host3
by_last() { # 200 messages of 512 words go by its spine, and not by the first one's
	local before_first before_last
	before_first=$(data_of "$first") before_last=$(data_of "$last")
	"${run[@]}" timeout -k 2 $((60 * SLOW)) "$work/lids" host1 host3 2 200 || return 1
	wait_for 5 by_last_spine
}
by_last_spine() { [ $(($(data_of "$last") - before_last)) -ge 100000 ] && [ $(($(data_of "$first") - before_first)) -lt 20000 ]; }
check "queue pairs that are connected by the last LIDs talk by its spine" by_last
packets_by_last() { VERBENA_WIRE=always by_last; }
check "... packet by packet too" packets_by_last
stop_fabric
finish

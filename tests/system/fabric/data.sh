#!/bin/bash
# data.sh - queue pairs by LID on a simulated fabric: stock programs, partitions, accidents in the middle, events, counters
# follows: IBA volume 1, 10.9 (partitions), 16.1.3.5 (PortCounters); perftest(1), ibv_rc_pingpong(1), man/verbena-fabric.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
LIMIT=60
start_fabric --generate fat-tree:4,2,3
guid_of() { ctl show "$1" | sed -n 's/.* guid 0x\([0-9a-f]*\).*/\1/p' | head -1; }
cat >"$work/partitions" <<-END
	Default=0x7fff: ALL=full, $(port_guid host2)=limited, $(port_guid host5)=limited;
	blue=0x1234: $(port_guid host2)=full, $(port_guid host5)=full, $(port_guid host8)=full;
END
rm -f "$work/watched"
VERBENA_NODE=host8 timeout -k 2 $((600 * SLOW)) "${run[@]}" stdbuf -oL ibv_asyncwatch -d ib0 >"$work/watched" 2>&1 &
watcher=$!
wait_for 10 grep -q 'async event FD' "$work/watched"
sm host1 -l 1 -P "$work/partitions" & # LMC 1: tables lead two LIDs to each host
manager=$!
check "opensm brings up the fabric" wait_for 30 all_active
saw() { [ "$(grep -c "$1" "$work/watched")" -ge "${2:-1}" ]; } # PATTERN TIMES
for event in IBV_EVENT_{LID_CHANGE,SM_CHANGE,CLIENT_REREGISTER,PORT_ACTIVE,PKEY_CHANGE}; do # docs/errors.md: IBV_EVENT_PKEY_CHANGE,
	check "a program sees $event" wait_for 10 saw "${event#IBV_EVENT_}"                 # IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER
done

# --- the device ---
shows() { # PATTERN PROGRAM ARGS…
	on host4 "${@:2}" >"$work/tool" 2>&1 && grep -qE "$1" "$work/tool" || { cat "$work/tool"; return 1; }
}
lid=$(($(lid_of host4)))
first() { on host4 ibv_devices | sed -n 3p | grep -q "^ *ib0 .*$(guid_of host4)\$"; }
check "the channel adapter is the first device, by its GUID" first
check "ibv_devinfo shows the LID" shows "port_lid:.*	$lid\$" ibv_devinfo -d ib0
check "ibv_devinfo shows the link layer and the state" shows 'link_layer:.*InfiniBand' ibv_devinfo -d ib0
check "ibv_devinfo shows width, speed and the GID" shows 'GID\[ *0\]:.*fe80:.*:005e:4b01' ibv_devinfo -d ib0 -v

# --- programs by LID: no GID index ---
check "RC: ibv_rc_pingpong" pair host4 host9 ibv_rc_pingpong -d ib0 -n 100
check "RC with a GRH" pair host4 host9 ibv_rc_pingpong -d ib0 -n 100 -g 0
check "UC: ibv_uc_pingpong" pair host4 host9 ibv_uc_pingpong -d ib0 -n 100
check "UD: ibv_ud_pingpong" pair host4 host9 ibv_ud_pingpong -d ib0 -n 100
check "UD with a GRH" pair host4 host9 ibv_ud_pingpong -d ib0 -n 100 -g 0
check "SRQ: ibv_srq_pingpong" pair host4 host9 ibv_srq_pingpong -d ib0 -n 100
check "XRC: ibv_xsrq_pingpong" pair host4 host9 ibv_xsrq_pingpong -d ib0 -n 100
check "ib_write_bw of UC" pair host4 host9 ib_write_bw -d ib0 -n 100 -c UC
check "ib_send_bw of UD" pair host4 host9 ib_send_bw -d ib0 -n 100 -c UD
check "ib_read_lat" pair host4 host9 ib_read_lat -d ib0 -n 100
check "ib_atomic_lat" pair host4 host9 ib_atomic_lat -d ib0 -n 100
check "both programs on one host" pair host4 host4 ibv_rc_pingpong -d ib0 -n 100
by_qperf() {
	local rc=0
	free_port
	VERBENA_NODE=host4 timeout -k 2 $LIMIT "${run[@]}" qperf -lp "$port" >"$work/server.out" 2>&1 &
	server=$!
	wait_for 20 listens "$port"
	VERBENA_NODE=host9 timeout -k 2 $LIMIT "${run[@]}" qperf -lp "$port" -t 1 127.0.0.1 rc_lat >"$work/client.out" 2>&1 || rc=1
	kill "$server"
	wait "$server" # passes it on to the processes that qperf left behind
	grep -q 'latency *=' "$work/client.out" && [ $rc = 0 ] || { said_by_both; return 1; }
}
if command -v qperf >/dev/null; then
	check "qperf, without VERBENA_LIDS" by_qperf
else
	skip "qperf, without VERBENA_LIDS" "qperf is not installed"
fi

# --- partitions: host2 and host5 are limited members of the default one, and full ones of blue ---
check "two limited members do not talk" fails host2 host5 ibv_rc_pingpong -d ib0 -n 100
check "a limited member talks to a full one" pair host2 host4 ibv_rc_pingpong -d ib0 -n 100
check "two limited members talk in a partition where both are full" pair host2 host5 ib_send_lat -d ib0 -n 100 --pkey_index=1
check "nobody talks into a partition where he is no member" fails host4 host5 ib_send_lat -d ib0 -n 100 -u 10 --pkey_index=1

# --- counters of the ports on the way ---
reads_counters() {
	local rc=0
	on host1 perfquery -R "$lid" 1 >/dev/null
	on host1 perfquery -x -R "$(lid_of host9)" 1 >/dev/null
	pair host4 host9 ib_write_bw -d ib0 -n 500 -s 65536 || return 1
	on host1 perfquery -x "$lid" 1 >"$work/tool"
	on host1 perfquery -x "$(lid_of host9)" 1 >>"$work/tool"
	# one side sent 500 messages of 32 packets, which the other received, with 24 bytes around each and 16 in each message
	awk -F: '{ sub(/^\.*/, "", $2); v[$1] = v[$1] " " $2 }
		END { split(v["PortXmitPkts"], x, " "); split(v["PortRcvPkts"], r, " "); split(v["PortRcvData"], d, " ")
			want = 500 * 32; for (i in x) sent = sent || (x[i] >= want && x[i] < want + 600)
			for (i in r) { got = got || (r[i] >= want && r[i] < want + 600)
				data = data || (d[i] >= 500 * (65536 + 32 * 24 + 16) / 4 && d[i] < 1.01 * 500 * (65536 + 32 * 24 + 16) / 4) }
			exit !(sent && got && data) }' "$work/tool" || { cat "$work/tool"; return 1; }
}
check "the ports at both ends count packets and bytes" reads_counters
stopped_counts() { # it has not told anything: the fabric process reads what it has counted
	local rc=0 first last
	first=$(sent_by_host9)
	VERBENA_NODE=host4 start_server ib_write_bw -d ib0 -D 10 -u 12
	VERBENA_NODE=host9 start_client ib_write_bw -d ib0 -D 10 -u 12
	wait_for 9 sent_more "$first" || rc=1
	kill -STOP "$(program_of "$client")"
	first=$(sent_by_host9)
	sleep 0.2
	last=$(sent_by_host9)
	kill -9 "$(program_of "$client")"
	[ "$first" = "$last" ] || { echo "counted late: $first, then $last"; rc=1; }
	wait "$client"
	last=$(sent_by_host9)
	[ "$((last - first))" -lt 1000 ] || { echo "counted at its end: $first, then $last"; rc=1; }
	kill -9 "$(program_of "$server")"
	wait "$server"
	return $rc
}
sent_by_host9() { ctl counters host9 1 | awk '$1 == "xmit_data" { print $2 }'; }
sent_more() { [ "$(sent_by_host9)" -gt $(($1 + 1000000)) ]; }
check "the counters are true while a program is stopped, and when it is killed" stopped_counts

# --- Open MPI over UCX: eight ranks, each a program of another host ---
ranks() { # COMMAND…: meanwhile
	local launched rc=0
	cat >"$work/rank" <<-'END'
		#!/bin/sh
		# full members of the default partition: UCX takes a partition in which its port is one
		VERBENA_NODE=host$(echo 1 3 4 6 7 9 10 11 | cut -d' ' -f$((OMPI_COMM_WORLD_RANK + 1))) exec "$@"
	END
	chmod 755 "$work/rank"
	(cd "$ROOT/tests/system/apps/mpi" && mpicc.openmpi -std=gnu17 -O2 -w -o "$work/ring" ring.c) || return 1
	UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=ib0:1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx \
		OMPI_MCA_btl=self OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 UCX_RC_VERBS_TIMEOUT=4s UCX_UD_VERBS_TIMEOUT=300s UCX_WARN_UNUSED_ENV_VARS=n \
		timeout -k 2 $((60 * SLOW)) mpirun.openmpi -np 8 "$work/rank" "${run[@]}" "$work/ring" >"$work/ranks.out" 2>&1 </dev/null &
	launched=$!
	"$@" || rc=1
	wait $launched && grep -q '^ring: 8 ranks agree' "$work/ranks.out" && [ $rc = 0 ] && return 0
	tail -30 "$work/ranks.out"
	return 1
}
cut_in_the_middle() {
	local before
	before=$(words) && wait_for 30 talks "$before" && ctl link spine1 1 down
}
words() { for p in 4 5; do ctl counters leaf3 $p; done | awk '$1 == "xmit_data" { sum += $2 } END { print sum }'; } # what the first leaf has sent to the spines
talks() { [ "$(words)" -gt $(($1 + 1000000)) ]; }
if command -v mpicc.openmpi >/dev/null && ! sanitized; then
	check "Open MPI over UCX, 8 ranks on 8 hosts; a link is cut in the middle" ranks cut_in_the_middle
	ctl link spine1 1 up
else
	skip "Open MPI over UCX, 8 ranks on 8 hosts" "it is not installed, or a sanitizer is in UCX's way"
fi

# --- accidents in the middle ---
without_manager() {
	local rc
	kill -STOP "$(program_of "$manager")"
	pair host4 host9 ibv_rc_pingpong -d ib0 -n 100 -c
	rc=$?
	kill -CONT "$(program_of "$manager")"
	return $rc
}
check "the subnet manager is silent: queue pairs connect all the same" without_manager
check "a switch on the way goes off, opensm leads around it, and traffic goes on" goes_on_without_spine host4 host9
check "a cable without another way is pulled: the retries end" ends_with host4 host9 ctl link host9 1 down
moved() { # host9 gets its second LID for its first: what it sends does not come from the address that host4 knows
	local lid before rc=0
	ctl link host9 1 up && wait_for 20 host9_active || return 1
	lid=$(($(lid_of host9))) before=$(sent_by_host9)
	VERBENA_NODE=host4 start_server ib_write_bw -d ib0 -D 10 -u 12
	VERBENA_NODE=host9 start_client ib_write_bw -d ib0 -D 10 -u 12
	wait_for 9 sent_more "$before" || rc=1 # while it polls a queue that is never empty
	ctl lid host9 1 $((lid + 1)) || rc=1
	wait_for 5 sees_cut || { said_by_both; rc=1; }
	kill "$server" "$client" 2>/dev/null
	wait "$server" "$client"
	ctl lid host9 1 $lid && return $rc
}
host9_active() { ctl show host9 | grep -q Active; }
check "a host gets another LID: its own retries end too" moved
check "a cable of the watched host is pulled" ctl link host8 1 down
check "its programs get a port error" wait_for 10 saw PORT_ERR
check "the cable is back" ctl link host8 1 up
check "and with it an event of the active port" wait_for 20 saw PORT_ACTIVE 2

# --- the fabric process ends ---
check "a program is killed while it writes: its peer's retries end" peer_dies host4 host9
check "the fabric process is killed: the retries end" ends_with host4 host9 kill -9 "$fabric"
check "and there is a port error" wait_for 10 saw PORT_ERR 2
kill "$watcher" "$(program_of "$manager")" 2>/dev/null
check "it is started again: programs that start then talk" fabric_again host4 host9 --generate fat-tree:4,2,3
kill "$(program_of "$manager")" 2>/dev/null
check "the fabric ends" stop_fabric
wait
finish

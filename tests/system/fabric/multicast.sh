#!/bin/bash
# multicast.sh - multicast by MLID on a simulated fabric, and partitions that change: perftest, and programs of the test
# follows: IBA volume 1, 10.5 (multicast), 10.9 (partitions); perftest(1), man/verbena-fabric.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
LIMIT=20
HERE=$ROOT/tests/system/fabric
for program in group limited crowd; do
	(cd "$HERE" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/$program" $program.c member.c -libverbs -libumad) || exit 1
done
start_fabric --generate fat-tree:2,2,2
members() { # HOST…: the full members of the partition; host3 and host4 are limited ones
	local host line='Default=0x7fff: ALL=full;'$'\n''blue=0x1234: '
	for host; do
		line+="$(port_guid "$host")=full, "
	done
	echo "$line$(port_guid host3)=limited, $(port_guid host4)=limited;" >"$work/partitions"
}
members host1 host2
sm host1 -P "$work/partitions" &
manager=$!
check "opensm brings up the fabric" wait_for 30 all_active

check "perftest joins a group, and its datagrams arrive" pair host2 host3 ib_send_lat -d ib0 -c UD -g -n 100
packet_by_packet() { VERBENA_WIRE=always pair host2 host3 ib_send_lat -d ib0 -c UD -g -n 100; }
check "the same with VERBENA_WIRE=always" packet_by_packet

# the programs print "ok SENTENCE" for each of their cases
how= # and how they were run
cases() { # SENTENCE PROGRAM ARGS…
	"${run[@]}" timeout -k 2 $((60 * SLOW)) "${@:2}" 2>"$work/said" | sed "y/_/ /; s/^ok .*/&$how/"
	[ "${PIPESTATUS[0]}" = 0 ] || { echo "not ok $1"; sed 's/^/	/' "$work/said"; failed=$((failed + 1)); }
}
has_key() { ctl pkeys "$1" 1 | grep -q "$2"; } # NODE KEY
check "the hosts are members of their partitions" wait_for 20 has_key host4 0x1234
cases "limited members of a partition" "$work/limited" host3 host4 host1 1
how=", packet by packet" VERBENA_WIRE=always cases "limited members of a partition, packet by packet" "$work/limited" host3 host4 host1 1
cases "multicast, or partitions that change" "$work/group" "$FABRIC"

loses_partition() {
	local rc=0
	VERBENA_NODE=host1 start_server ib_send_lat -d ib0 -D 10 -u 12 --pkey_index=1
	VERBENA_NODE=host2 start_client ib_send_lat -d ib0 -D 10 -u 12 --pkey_index=1
	sleep 0.5
	members host1
	kill -HUP "$(program_of "$manager")"
	wait_for 15 sees_cut || { said_by_both; rc=1; }
	kill "$server" "$client" 2>/dev/null
	wait "$server" "$client"
	return $rc
}
check "opensm takes a host out of its partition: the retries of its peer end" loses_partition
kill "$(program_of "$manager")" 2>/dev/null
wait "$manager"
check "the fabric ends" stop_fabric

start_fabric --generate fat-tree:4,2,2
rm -rf "$work/sm-host1"
sm host1 &
manager=$!
check "opensm brings up a fabric of eight hosts" wait_for 30 all_active
cases "a group of eight members, one of which stops" "$work/crowd"
kill "$(program_of "$manager")" 2>/dev/null
wait "$manager"
check "it ends, too" stop_fabric
finish

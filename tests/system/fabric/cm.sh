#!/bin/bash
# cm.sh - rdma_cm on a simulated fabric: stock programs by IP address and by GID, rejections, partitions, cut cables, programs that die
# follows: rping(1), ucmatose(1), udaddy(1), cmtime(1), rdma_client(1), rdma_cm(7); man/verbena-fabric.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
on_a=(env VERBENA_NODE=host4) on_b=(env VERBENA_NODE=host9)
source "$(dirname "$0")/../../support/cm.sh"
need rping ucmatose udaddy cmtime rdma_server
LIMIT=20
start_fabric --generate fat-tree:4,2,3 --network 10.77.0.0/24
ip_of() { ctl address "$1" | sed -n '1s/\t.*//p'; }
cat >"$work/partitions" <<-END
	Default=0x7fff: ALL=full, $(port_guid host2)=limited, $(port_guid host5)=limited;
END
sm host1 -P "$work/partitions" &
manager=$!
check "opensm brings up the fabric" wait_for 30 all_active
there=$(ip_of host9)
numbered() { [ "$there" = 10.77.0.9 ] && [ "$(ctl address | wc -l)" = 12 ]; }
check "the channel adapters have addresses of the network" numbered

# --- by IP address ---
check "rping" both rping -s -a "$there" -C 20 -V -- rping -c -a @ -C 20 -V
check "rping, all addresses" both rping -s -C 5 -- rping -c -a @ -C 5
on_itself() { local on_a=("${on_b[@]}"); "$@"; }
check "rping to a program of its own host" on_itself both rping -s -a "$there" -C 5 -- rping -c -a @ -C 5
check "ucmatose: 20 connections" both ucmatose -b "$there" -c 20 -C 5 -- ucmatose -s @ -c 20 -C 5
check "udaddy: 5 datagram ids" both udaddy -b "$there" -c 5 -C 5 -- udaddy -s @ -c 5 -C 5
check "rdma_server and rdma_client" both rdma_server -s "$there" -- rdma_client -s @
check "cmtime: 50 connections" cmtimes "$there" 50
# its server closes its listener, and opens another one, between the two connections that its client makes
check "ib_send_bw -R" both ib_send_bw -R -F -n 50 -s 4096 -- ib_send_bw -R -F -n 50 -s 4096 @
given() {
	ctl address host9 fd77::9 && ctl address host4 fd77::4 || return 1
	local there=fd77::9
	both rping -s -a $there -C 5 -- rping -c -a @ -C 5
}
check "rping by an IPv6 address that ctl has given" given

# --- by GID ---
gid=$(on host9 ibaddr -g | sed 's/GID //; s/ .*//')
by_gid() { local there=$gid; both "$@"; }
check "ucmatose -f gid" by_gid ucmatose -f gid -b "$gid" -c 5 -C 5 -- ucmatose -f gid -s @ -c 5 -C 5
check "ucmatose -f gid, all addresses" by_gid ucmatose -f gid -c 3 -C 5 -- ucmatose -f gid -s @ -c 3 -C 5

# --- multicast ---
here=$(ip_of host4)
groups() { on host1 saquery -g | grep -c "MGID.*$1"; } # PATTERN
has_no_group() { [ "$(groups "$1")" = 0 ]; }
only= # -o: the sender is no member that receives
group() { # MGID MCKEY-ARGS…: the manager answers a join before it has written the tables, so some are sent in vain
	local member rc=0 end=$((SECONDS + 15 * SLOW))
	VERBENA_NODE=host9 timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" mckey "${@:2}" -b "$there" -C 5 >"$work/server.out" 2>&1 &
	member=$!
	until gone $member || [ $SECONDS -gt $end ]; do
		on host4 mckey -s $only "${@:2}" -b "$here" -C 5 >"$work/client.out" 2>&1 || rc=1
	done
	wait $member && [ $rc = 0 ] && wait_for 5 has_no_group "$1" && return 0
	on host1 saquery -g
	said_by_both
	return 1
}
check "mckey: a group, which ends with its last member" group ff12:4001:ffff::f09:807 -m 239.9.8.7
only=-o check "mckey: a member that only sends" group ff12:4001:ffff::f09:808 -m 239.9.8.8
check "mckey: a group of two ids, of the port space of IPoIB" group ff12:401b:ffff::f09:809 -m 239.9.8.9 -p 0x0002 -c 2
check "mckey: a group by its MGID" group ff12:a01b:fe80::77 -M ff12:a01b:fe80::77
has_group() { ! has_no_group "$1"; }
joins_again() { # the new manager knows nothing of the group until the port joins again, which its program does not do
	local rc=0 end
	VERBENA_NODE=host9 timeout -k 2 $((60 * SLOW)) "${run[@]}" mckey -m 239.9.8.5 -b "$there" -C 5 >"$work/server.out" 2>&1 &
	server=$!
	wait_for 10 has_group f09:805 || return 1
	kill -9 "$(program_of "$manager")"
	wait "$manager"
	rm -r "$work/sm-host1"
	sm host1 -P "$work/partitions" &
	manager=$!
	wait_for 20 has_group f09:805 || rc=1
	end=$((SECONDS + 15 * SLOW))
	until gone $server || [ $SECONDS -gt $end ]; do
		on host4 mckey -s -m 239.9.8.5 -b "$here" -C 5 >"$work/client.out" 2>&1 || rc=1
	done
	wait $server && [ $rc = 0 ] && return 0
	on host1 saquery -g
	said_by_both
	return 1
}
check "a subnet manager is killed, another one begins with nothing: the port joins its groups again" joins_again
leaves() { # a program that is killed
	VERBENA_NODE=host9 timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" mckey -m 239.9.8.6 -b "$there" -C 5 >"$work/server.out" 2>&1 &
	server=$!
	wait_for 10 says_group || return 1
	kill -9 "$(program_of "$server")"
	wait "$server"
	wait_for 5 has_no_group f09:806
}
says_group() { ! has_no_group f09:806; }
check "a program is killed: its port leaves its groups" leaves

# --- each host has its own ports ---
both_serve() {
	local rc=0 one two
	VERBENA_NODE=host9 timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" rping -s -C 3 >"$work/one" 2>&1 &
	one=$!
	VERBENA_NODE=host8 timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" rping -s -C 3 >"$work/two" 2>&1 &
	two=$!
	for node in host9 host8; do
		wait_for 10 pings "$node" || rc=1
	done
	wait $one && wait $two && [ $rc = 0 ] || { cat "$work/one" "$work/two" "$work/tool"; return 1; }
}
pings() { on host4 rping -c -a "$(ip_of "$1")" -C 3 >"$work/tool" 2>&1; }
check "two hosts serve one port at a time" both_serve
says() { # PATTERN NODE PROGRAM ARGS…
	on "${@:2}" >"$work/tool" 2>&1
	grep -q "$1" "$work/tool" || { cat "$work/tool"; return 1; }
}
start_rping() { # the server of host9, until it listens
	rm -f "$work/server.out"
	VERBENA_NODE=host9 timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" stdbuf -oL rping -s -d -v >"$work/server.out" 2>&1 &
	server=$!
	wait_for 10 grep -q rdma_listen "$work/server.out"
}
start_rping
# rping then destroys its channel. Its other thread may begin to read there after that, and the sanitizer would end it
sanitized || check "the port of a host is taken" says 'Address already in use' host9 rping -s
kill "$server"
wait "$server"

# --- what does not work ---
check "nobody listens: rejected" says 'REJECTED, error 8' host4 rping -c -a "$there"
check "nobody listens at a host without programs: rejected" says 'REJECTED, error 8' host4 rping -c -a "$(ip_of host12)"
check "a service of datagrams that nobody has" says 'UNREACHABLE' host4 udaddy -s "$(ip_of host12)"
check "two limited members of a partition have no path" says 'ROUTE_ERROR' host2 rping -c -a "$(ip_of host5)"
check "a limited member reaches a full one" says 'REJECTED, error 8' host2 rping -c -a "$there"
cut() {
	ctl link host11 1 down
	wait_for 10 gone_for_sa || return 1
	says 'ROUTE_ERROR' host4 rping -c -a "$(ip_of host11)"
}
gone_for_sa() { ! on host4 saquery NR | grep -q host11; }
check "a cut cable: there is no path" cut

# --- programs that die ---
says_end() { grep -q 'DISCONNECT\|disconnect' "$work/server.out"; }
killed() {
	start_rping || return 1
	VERBENA_NODE=host4 timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" rping -c -a "$there" -C 1000000 >"$work/client.out" 2>&1 &
	client=$!
	wait_for 10 grep -q 'ESTABLISHED' "$work/server.out" || { said_by_both; return 1; }
	kill -9 "$(program_of "$client")"
	wait "$client"
	wait_for 10 says_end || { said_by_both; return 1; }
	kill "$server" 2>/dev/null
	wait "$server"
	true
}
check "a program is killed: its peer is told" killed
silent() {
	kill -STOP "$(program_of "$manager")"
	says 'ROUTE_ERROR, error -110' host4 rping -c -a "$there" || return 1
	kill -CONT "$(program_of "$manager")"
}
check "the subnet manager does not answer: the route times out" silent
ended() { # while the subnet manager is silent
	kill -STOP "$(program_of "$manager")"
	VERBENA_NODE=host4 timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" stdbuf -oL rping -c -d -a "$there" >"$work/client.out" 2>&1 &
	client=$!
	wait_for 10 grep -q ADDR_RESOLVED "$work/client.out"
	stop_fabric
	kill -CONT "$(program_of "$manager")"
	wait "$client"
	grep -q 'ROUTE_ERROR' "$work/client.out" || { said_by_both; return 1; }
}
check "the fabric ends: a question to its subnet manager fails" ended
kill "$(program_of "$manager")" 2>/dev/null
wait
finish

#!/bin/bash
# iwarp.sh - programs of rdma_cm on iWARP adapters, from one host to another and on one host
# follows: rping(1), ucmatose(1), rdma_client(1), perftest(1); RFC 5044
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/../cm.sh"
need rping ib_send_lat
export VERBENA_DEVICES=iwarp:net0
check "two hosts" hosts

# A connection that was refused says so in the words of iWARP
early="$early\|REJECTED[,;] error:\{0,1\} -111\|REJECTED; error: -111"

# Nothing of RoCE; a neighbour is asked for by a datagram or two
by_tcp() {
	local before after
	before=$(($(datagrams $A) + $(datagrams $B)))
	"$@" || return 1
	after=$(($(datagrams $A) + $(datagrams $B)))
	[ $((after - before)) -lt 8 ] && return 0
	echo "there were $((after - before)) UDP datagrams"
	return 1
}
datagrams() { ip netns exec "$1" cat /proc/net/snmp /proc/net/snmp6 | awk '/^Udp:/ { n = $5 } /^Udp6OutDatagrams/ { m = $2 } END { print n + m }'; }

verbs="ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat"
programs() { # WHERE: a way to check that it was there, e.g. crossing 1000
	local where=$1
	shift
	check "rping, $where" "$@" both rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
	check "rping, any address, $where" "$@" both rping -s -a $any -C 5 -V -- rping -c -a @ -C 5 -V
	check "rping, 60000 bytes, $where" "$@" both rping -s -a $there -C 10 -S 60000 -- rping -c -a @ -C 10 -S 60000
	check "ucmatose, 20 connections, $where" "$@" both ucmatose -b $any -c 20 -C 10 -- ucmatose -s @ -c 20 -C 10
	check "rdma_server and rdma_client, $where" "$@" both rdma_server -s $there -- rdma_client -s @
	check "cmtime, 20 connections, $where" "$@" cmtimes $there 20
}
measures() {
	local where=$1 p
	shift
	# this perftest looks names up as IPv4's only
	for p in $verbs; do
		check "$p -R, $where" "$@" both $p -R -F -n 50 -- $p -R -F -n 50 @
	done
	check "ib_send_bw -R -q 8, $where" "$@" both ib_send_bw -R -F -q 8 -s 4096 -n 50 -- ib_send_bw -R -F -q 8 -s 4096 -n 50 @
	check "ib_read_bw -R -a, $where" "$@" both ib_read_bw -R -F -a -n 5 -- ib_read_bw -R -F -a -n 5 @
	check "ib_write_bw -R -b, $where" "$@" both ib_write_bw -R -F -b -n 50 -- ib_write_bw -R -F -b -n 50 @
	# ib_send_bw -e waits for an event where it means a credit, on any iWARP adapter
	check "ib_read_bw -R -e, $where" "$@" both ib_read_bw -R -F -e -n 50 -- ib_read_bw -R -F -e -n 50 @
}

there=$V4_B any=0.0.0.0
programs IPv4 crossing 500 by_tcp
measures IPv4 crossing 4000 by_tcp
there=$V6_B any=::
programs IPv6 crossing 500 by_tcp
export VERBENA_MPA=crc,markers
there=$V4_B any=0.0.0.0
check "rping, CRC and markers" crossing 2000 both rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
check "ib_send_bw -R, CRC and markers" crossing 4000 both ib_send_bw -R -F -n 50 -- ib_send_bw -R -F -n 50 @
check "ib_read_bw -R, CRC and markers" crossing 4000 both ib_read_bw -R -F -n 50 -- ib_read_bw -R -F -n 50 @
unset VERBENA_MPA

# on one host: nothing crosses, and in memory there is no TCP connection either
staying() { # COMMAND…
	local a
	a=$(came $A)
	"$@" && [ $(($(came $A) - a)) -lt 2000 ]
}
segments() { ip netns exec $A cat /proc/net/snmp | awk '/^Tcp:/ { n = $12 } END { print n }'; }
in_memory() {
	local before=$(segments) after
	"$@" || return 1
	after=$(segments)
	[ $((after - before)) -lt 40 ] && return 0
	echo "there were $((after - before)) TCP segments"
	return 1
}
on_b=("${on_a[@]}")
there=$V4_A
programs "one host" staying
measures "one host" staying
check "ib_write_bw -R stays in memory" in_memory both ib_write_bw -R -F -n 1000 -- ib_write_bw -R -F -n 1000 @
export VERBENA_WIRE=always
programs "one host, VERBENA_WIRE=always" staying
measures "one host, VERBENA_WIRE=always" staying
finish

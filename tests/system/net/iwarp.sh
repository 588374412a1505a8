#!/bin/bash
# iwarp.sh - rdma_cm programs on iWARP adapters, between two hosts and on one host
# follows: rping(1), ucmatose(1), rdma_client(1), rstream(1), rcopy(1), fio(1), perftest(1); RFC 5044; RFC 7145 (iSER)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/../../support/fio.sh"
source "$(dirname "$0")/../../support/iser.sh"
source "$(dirname "$0")/../../support/cm.sh"
need rping ib_send_lat rstream rcopy
export VERBENA_DEVICES=iwarp:net0
check "two hosts" hosts

# A refused connection reports errors of iWARP
early="$early\|REJECTED[,;] error:\{0,1\} -111\|REJECTED; error: -111"

# No RoCE packets; a query for a neighbour takes a datagram or two
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
programs() { # WHERE: a command to check the path, e.g. crossing 1000
	local where=$1
	shift
	check "rping, $where" "$@" both rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
	check "rping, any address, $where" "$@" both rping -s -a $any -C 5 -V -- rping -c -a @ -C 5 -V
	check "rping, 60000 bytes, $where" "$@" both rping -s -a $there -C 10 -S 60000 -- rping -c -a @ -C 10 -S 60000
	check "ucmatose, 20 connections, $where" "$@" both ucmatose -b $any -c 20 -C 10 -- ucmatose -s @ -c 20 -C 10
	check "rdma_server and rdma_client, $where" "$@" both rdma_server -s $there -- rdma_client -s @
	check "cmtime, 20 connections, $where" "$@" cmtimes $there 20
	check "rstream, $where" "$@" streams
	case $there in *:*) ;; *) check "rcopy, $where" "$@" copies ;; esac # it takes the part after a colon for the file's name
}
streams() { both rstream -b $there -T v -S 65536 -C 5 -I 2 -- rstream -s @ -T v -S 65536 -C 5 -I 2; }
measures() {
	local where=$1 p
	shift
	# this perftest resolves names to IPv4 addresses only
	for p in $verbs; do
		check "$p -R, $where" "$@" both $p -R -F -n 50 -- $p -R -F -n 50 @
	done
	# its credits rely on the order of connections; on a busy machine TCP may deliver one before another
	AGAIN=yes check "ib_send_bw -R -q 8, $where" "$@" both ib_send_bw -R -F -q 8 -s 4096 -n 50 -- ib_send_bw -R -F -q 8 -s 4096 -n 50 @
	# -a measures the processor's frequency for each of 23 sizes
	local s
	if [ "$where" = IPv4 ]; then
		check "ib_read_bw -R -a, $where" "$@" both ib_read_bw -R -F -a -n 5 -- ib_read_bw -R -F -a -n 5 @
	else
		for s in 2 65536 8388608; do check "ib_read_bw -R, $s bytes, $where" "$@" both ib_read_bw -R -F -s $s -n 5 -- ib_read_bw -R -F -s $s -n 5 @; done
	fi
	check "ib_write_bw -R -b, $where" "$@" both ib_write_bw -R -F -b -n 50 -- ib_write_bw -R -F -b -n 50 @
	# ib_send_bw -e waits for an event instead of a credit, on any iWARP adapter
	check "ib_read_bw -R -e, $where" "$@" both ib_read_bw -R -F -e -n 50 -- ib_read_bw -R -F -e -n 50 @
}

# CRC and markers, each alone and both
framings() {
	local p
	for VERBENA_MPA in crc markers crc,markers; do
		export VERBENA_MPA
		for there in $V6_B $V4_B; do
			check "rping, $VERBENA_MPA, $there" crossing 2000 both rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
			check "ucmatose, $VERBENA_MPA, $there" crossing 2000 both ucmatose -b $there -c 5 -C 5 -- ucmatose -s @ -c 5 -C 5
			check "rstream, $VERBENA_MPA, $there" crossing 100000 streams
		done
		check "rcopy, $VERBENA_MPA" crossing 3000000 copies
		for p in ib_send_bw ib_write_bw ib_read_bw; do
			check "$p -R, $VERBENA_MPA" crossing 4000 both $p -R -F -n 50 -- $p -R -F -n 50 @
		done
		[ -z "$have_fio" ] || check "fio: verify, $VERBENA_MPA" crossing 1000000 job write 1m --bs=16k --iodepth=4 --verify=crc32c --do_verify=0
	done
	unset VERBENA_MPA
}
files() { # WHERE COMMAND-IN-FRONT…
	local where=$1 verb
	shift
	for verb in write read send; do
		check "fio: $verb, $where" "$@" job $verb 4m --bs=64k --iodepth=16 --verify=crc32c --do_verify=0
	done
}
disk() { # WHERE COMMAND-IN-FRONT…
	local before=$failed where_it_is=$1
	shift
	check "tgtd listens for iSER, $where_it_is" start_target
	[ $failed = $before ] || return
	check "iscsi-inq, $where_it_is" inquires
	sanitized || check "an image of $MB MB over iSER, $where_it_is" "$@" writes_and_reads
	check "tgtd ends, $where_it_is" target_ends
}
there=$V4_B any=0.0.0.0
programs IPv4 crossing 500 by_tcp
measures IPv4 crossing 4000 by_tcp
there=$V6_B any=::
programs IPv6 crossing 500 by_tcp

there=$V4_B
have_fio= no_iser=$(why_no_iser)
if command -v fio >/dev/null && fio --enghelp=rdma >/dev/null 2>&1; then
	have_fio=1 on_server=("${on_b[@]}") on_client=("${on_a[@]}")
	files IPv4 crossing 1000000 by_tcp
else
	skip "fio" "there is none with an rdma engine"
fi
framings
at_a=("${on_a[@]}") at_b=("${on_b[@]}") where=$V4_B
if [ -z "$no_iser" ]; then
	disk IPv4 crossing $((MB << 20))
	VERBENA_MPA=crc disk "IPv4, CRC" crossing $((MB << 20))
else
	skip "iSER" "$no_iser"
fi

# on one host: nothing crosses the cable, and in shared memory there is no TCP connection either
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
[ -z "$have_fio" ] || { on_server=("${on_a[@]}"); files "one host" staying; }
at_b=("${on_a[@]}") where=$V4_A
[ -n "$no_iser" ] || disk "one host" staying
check "ib_write_bw -R stays in memory" in_memory both ib_write_bw -R -F -n 1000 -- ib_write_bw -R -F -n 1000 @
export VERBENA_WIRE=always
programs "one host, VERBENA_WIRE=always" staying
measures "one host, VERBENA_WIRE=always" staying
finish

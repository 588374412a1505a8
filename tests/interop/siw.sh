#!/bin/bash
# siw.sh - Verbena's iWARP and the Linux kernel's, siw in an emulated guest, each as server and as client
# follows: RFC 5040, 5041, 5044, 6581; rping(1), ucmatose(1), rdma_client(1), rcopy(1), rstream(1), perftest(1)
# SPDX-License-Identifier: MIT
# usage: siw.sh [PATTERN]   only the cases whose sentence matches
# SIW_LAB: the name of a running guest, which is left running
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/cm.sh"
lab_needs rping ib_send_bw
export VERBENA_DEVICES=iwarp:tap0
only=${1:-.}
lab_boots vbsiw "${SIW_LAB:-}"
why=$(siw_module) || { skip siw "no siw.ko for the guest: $why"; exit 0; }
adapter() {
	"$LAB" put "$work/siw.ko" || return 1
	"$LAB" guest "rdma link show rxe0/1 >/dev/null 2>&1 && rdma link del rxe0; modprobe -a iw_cm libcrc32c; lsmod | grep -q ^siw || insmod /root/siw.ko
		rdma link show siw0/1 >/dev/null 2>&1 || rdma link add siw0 type siw netdev eth0; rdma link show siw0/1 | grep -q ACTIVE"
}
check "the guest has siw0" adapter
# siw answers an MPA request before it reads its socket. Data that a fast peer sends at once would wait there until more
# arrives, and a connection that ends before the kernel considers it established is a BUG() in iw_cm. So its answers are
# delayed.
slow() { "$LAB" guest "tc qdisc replace dev eth0 root netem delay 3ms limit 10000"; }
check "the guest's answers are slow" slow
(cd "$HERE" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/rdmap" rdmap.c -lrdmacm -libverbs) || exit 1
chmod 755 "$work/rdmap"
check "the guest gets the program that verifies" "$LAB" put "$work/rdmap"
guest_gets_bounded
[ $failed = 0 ] || exit 1
AGAIN=1 # a guest whose emulated processors get no time hangs, even when the kernel talks to itself
BETWEEN=revive
settings= # sets parameters of the module
siw_set() { # VALUE NAME…
	settings+=$(printf 'echo %s >%s;' "$@")
	"$LAB" guest "cd /sys/module/siw/parameters; $settings"
}
# the BUG() happened anyway: use another guest
revive() {
	"$LAB" broke >"$work/broke" || return 0
	sed 's/^/# the guest has broken: /' "$work/broke"
	{ "$LAB" up && adapter && slow && "$LAB" put "$work/rdmap" "$ROOT/tests/interop/lab/bounded" && "$LAB" guest "cd /sys/module/siw/parameters; $settings"; } >"$work/said" 2>&1 || cat "$work/said"
	before=0
}

early='REJECTED[,;] error:\{0,1\} -111\|REJECTED; error: -111\|onnection refused\|UNREACHABLE[,;] error:\{0,1\} -1' # too early: nobody listens yet

perf() { # WAY PROGRAM ARGS…
	local way=$1 p=$2
	shift 2
	case_of "$way" "$p -R $*" "$p" -R -F "$@" -- "$p" -R -F "$@" @
}

few() { # the cases for each of the settings
	local way
	for way in verbena siw; do
		case_of $way "rping, $1" rping -s -a $any -C 10 -V -- rping -c -a @ -C 10 -V
		case_of $way "every kind of message, $1" "$work/rdmap" -s $any -k "$kinds" -- "$work/rdmap" -c @ -k "$kinds"
	done
}

kinds=send,send-se,send-inv,write,read
for f in IPv4 IPv6; do
	case $f in
	IPv4) HERE_IP=192.0.2.1 THERE_IP=192.0.2.2 any=0.0.0.0 ;;
	IPv6) HERE_IP=2001:db8:2::1 THERE_IP=2001:db8:2::2 any=:: ;;
	esac
	for way in verbena siw; do
		here=$HERE_IP
		[ $way = verbena ] || here=$THERE_IP # server's
		before=$(came)
		case_of $way "rping" rping -s -a $any -C 10 -V -- rping -c -a @ -C 10 -V
		case_of $way "rping, 60000 bytes" rping -s -a $here -C 5 -S 60000 -V -- rping -c -a @ -C 5 -S 60000 -V
		case_of $way "every kind of message" "$work/rdmap" -s $any -k $kinds -- "$work/rdmap" -c @ -k $kinds
		case_of $way "ucmatose" ucmatose -b $any -c 5 -C 10 -- ucmatose -s @ -c 5 -C 10
		case_of $way "rdma_client" rdma_server -s $here -- rdma_client -s @
		# rcopy takes the part before the first colon for the address
		[ $f = IPv6 ] || ! wanted "$way serves, $f: rcopy" || check "$way serves, $f: rcopy" copies $way
		case_of $way "rstream" rstream -b $here -T v -S 16384 -C 5 -I 2 -- rstream -s @ -T v -S 16384 -C 5 -I 2
		# this perftest resolves names to IPv4 addresses only
		[ $f = IPv4 ] || continue
		for p in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat; do perf $way $p -n 50; done
		[ "$only" != . ] || check "$way serves, $f: the data came by the cable" test $(($(came) - before)) -gt 500000
	done
done

f=IPv4 HERE_IP=192.0.2.1 THERE_IP=192.0.2.2 any=0.0.0.0
siw_set Y mpa_crc_required
few "siw asks for CRC"
export VERBENA_MPA=crc
few "both ask for CRC"
siw_set N mpa_crc_required
few "Verbena asks for CRC"
unset VERBENA_MPA
siw_set Y peer_to_peer
few "siw asks for the peer-to-peer model"
siw_set N peer_to_peer 1 mpa_version
few "siw knows MPA revision 1"
siw_set 2 mpa_version

# --- invalid requests ---
# siw swaps M, D, R and layer and type in its Terminate messages; the failed request is found anyway
fatal= # the reason of an expected IBV_EVENT_QP_FATAL
ends() { # WAY KIND REQUEST RECEIVE: ended by this message of the client; results of it there and of the server's receive
	local status
	[ "$1" = verbena ] || LASTS=1 # siw does not always flush receives
	both "$1" "$work/rdmap" -s $any -k bad-read -- "$work/rdmap" -c @ -k $2
	status=$?
	LASTS=
	[ -z "$fatal" ] || { grep -q "^async: local work queue catastrophic error" "$work/client.out" && grep -q "the peer ended its connection: $fatal" "$work/client.out"; } || status=1
	[ "$1" = siw ] || { grep -q "^ended: $4" "$work/server.out" && grep -q "^event: RDMA_CM_EVENT_DISCONNECTED, 0" "$work/server.out"; } || status=1
	grep -q "^ended: \($3\)" "$work/client.out" && grep -q "^event: RDMA_CM_EVENT_DISCONNECTED, 0" "$work/client.out" && [ $status = 0 ] && return 0
	said_by_both
	return 1
}
flushed="Work Request Flushed Error"
ends_of() { # WAY KIND …
	! wanted "$1 serves, $f: ends by $2" || check "$1 serves, $f: ends by $2" ends "$@"
}
refused() { # COMMAND…: fails with an error of iWARP
	"$@" >"$work/client.out" 2>&1 && return 1
	grep -q "RDMA_CM_EVENT_REJECTED, error -1[01][41]" "$work/client.out" && return 0
	cat "$work/client.out"
	return 1
}
wants_markers() { # WAY: siw does not support it
	local status
	if [ "$1" = verbena ]; then
		VERBENA_MPA=markers ours "$work/rdmap" -s $any >"$work/server.out" 2>&1 </dev/null &
		server=$!
		wait_for 20 listens 7471 || return 1
		refused theirs /root/rdmap -c $HERE_IP
	else
		theirs /root/rdmap -s $any >"$work/server.out" 2>&1 &
		server=$!
		guest_listens
		VERBENA_MPA=markers refused ours "$work/rdmap" -c $THERE_IP
	fi
	status=$?
	gone "$server" || stop_server "$1"
	wait "$server"
	return $status
}
for way in verbena siw; do
	request="request: remote access error"
	[ $way = siw ] || request="request: $flushed\\|request: remote access error" # siw as the client
	ends_of $way bad-read "$request" "receive: $flushed"
	ends_of $way bad-write "request: $flushed\\|receive: $flushed\\|request: remote access error" "receive: $flushed"
	ends_of $way bad-send "request: \\|receive: $flushed" "receive: \\(local length error\\|$flushed\\)"
	! wanted "$way serves, $f: markers are refused" || check "$way serves, $f: markers are refused" wants_markers $way
done
# siw does not support RFC 7306
ends_of siw bad-atomic "request: remote invalid request error" "receive: $flushed"
# the write is complete by then: RFC 7306, 1.1, cannot ask before
fatal="unexpected opcode"
export VERBENA_LOG=warn
ends_of siw bad-imm "receive: $flushed" "receive: $flushed"
finish

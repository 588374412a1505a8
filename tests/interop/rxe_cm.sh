#!/bin/bash
# rxe_cm.sh - Verbena's connection manager and the Linux kernel's, in an emulated guest, each as server and as client
# follows: IBA volume 1, chapter 12 and annexes A11 and A17; rping(1), ucmatose(1), udaddy(1), rdma_client(1), rcopy(1), rstream(1), perftest(1)
# SPDX-License-Identifier: MIT
# usage: rxe_cm.sh [PATTERN]   only the cases whose sentence matches
# RXE_CM_ONLY: the same
# RXE_CM_LAB: the name of a running guest, which is left running
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/cm.sh"
lab_needs rping ib_send_bw
only=${1:-${RXE_CM_ONLY:-.}}
lab_boots vbcm "${RXE_CM_LAB:-}"
guest_gets_bounded
AGAIN=1 # a guest whose emulated processors get no time hangs, even when the kernel talks to itself
early='REJECTED[,;] error:\{0,1\} 8\|UNREACHABLE[,;] error:\{0,1\} 1\|onnection refused' # an attempt came too early: nobody listens yet

# perftest connects twice, and its server closes the port and listens again in between. The kernel rejects a client that
# arrives in that moment (REJ, reason 8; Verbena lets it wait). perftest's client does not survive that, and its server
# is left half way: it answers another client's first SEND with RNR NAKs forever. So both begin again.
twice() { # WAY SERVER… -- CLIENT…
	local _
	for _ in $(seq 10); do
		ONCE=1 both "$@" && return 0
		[ "$1" = rxe ] && grep -q "$early" "$work/client.out" || return 1
	done
	return 1
}
perf() { # WAY PROGRAM ARGS…
	local way=$1 p=$2 sentence
	shift 2
	sentence="$way serves, $f: $p -R $*"
	! wanted "$sentence" || check "$sentence" twice "$way" "$p" -R -F "$@" -- "$p" -R -F "$@" @
}

for f in IPv4 IPv6; do
	case $f in
	IPv4) HERE_IP=192.0.2.1 THERE_IP=192.0.2.2 any=0.0.0.0 ;;
	IPv6) HERE_IP=2001:db8:2::1 THERE_IP=2001:db8:2::2 any=:: ;;
	esac
	for way in verbena rxe; do
		here=$HERE_IP there=$THERE_IP
		[ $way = verbena ] || here=$THERE_IP there=$HERE_IP # server's, client's
		before=$(came)
		case_of $way "rping" rping -s -a $any -C 10 -V -- rping -c -a @ -C 10 -V
		case_of $way "rping, 60000 bytes" rping -s -a $here -C 5 -S 60000 -- rping -c -a @ -C 5 -S 60000
		case_of $way "ucmatose" ucmatose -b $any -c 5 -C 10 -- ucmatose -s @ -c 5 -C 10
		case_of $way "udaddy" udaddy -b $here -c 3 -C 10 -- udaddy -s @ -b $there -c 3 -C 10
		case_of $way "rdma_client" rdma_server -s $here -- rdma_client -s @
		# rcopy takes the part before the first colon for the address
		[ $f = IPv6 ] || ! wanted "$way serves, $f: rcopy" || check "$way serves, $f: rcopy" copies $way
		case_of $way "rstream" rstream -b $here -T v -S 16384 -C 5 -I 2 -- rstream -s @ -T v -S 16384 -C 5 -I 2
		# this perftest resolves names to IPv4 addresses only
		[ $f = IPv4 ] || continue
		for p in ib_send_bw ib_write_bw; do perf $way $p -n 50; done
		perf $way ib_read_bw -o 16 -n 50
		for p in ib_send_lat ib_write_lat; do perf $way $p -n 50; done
		for p in ib_read_lat ib_atomic_lat; do perf $way $p -o 16 -n 50; done
		perf $way ib_send_bw -c UD -s 1024 -n 50
		[ "$only" != . ] || check "$way serves, $f: the data came by the cable" test $(($(came) - before)) -gt 500000
	done
done
finish

#!/bin/bash
# rxe_cm.sh - Verbena's connection manager and the Linux kernel's, in an emulated guest, each as server and as client
# follows: IBA volume 1, chapter 12 and annexes A11 and A17; rping(1), ucmatose(1), udaddy(1), rdma_client(1), rcopy(1), rstream(1), perftest(1)
# SPDX-License-Identifier: MIT
# usage: rxe_cm.sh [PATTERN]   only the cases whose sentence matches
# RXE_CM_ONLY: the same
# RXE_CM_LAB: the name of a guest that is up already; it is left up
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../lib.sh"
need ip qemu-system-x86_64 mmdebstrap nc rping ib_send_bw
[ "$(id -u)" = 0 ] || { skip rxe_cm "only root makes network namespaces"; exit 0; }
[ -c /dev/net/tun ] || { skip rxe_cm "there is no /dev/net/tun"; exit 0; }

export VERBENA_LAB_NAME=${RXE_CM_LAB:-vbcm$$}
LAB=$HERE/../lab/lab
only=${1:-${RXE_CM_ONLY:-.}}
LIMIT=20
lab_cleanup() {
	local status=$?
	trap - EXIT INT TERM
	[ -n "${RXE_CM_LAB:-}" ] || "$LAB" down
	(exit $status)
	cleanup
}
trap lab_cleanup EXIT
trap 'exit 130' INT TERM

[ -n "${RXE_CM_LAB:-}" ] || check "the guest boots" "$LAB" up
[ $failed = 0 ] || exit 1
AGAIN=1 # a guest whose emulated processors get no time hangs by itself, the kernel with itself too

# --- the two hosts ---
on_here=(ip netns exec $VERBENA_LAB_NAME env "VERBENA_RUNTIME=$work/run")
ours() { "${on_here[@]}" timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "$@"; }
theirs() { VERBENA_LAB_S=$((LIMIT + 10)) "$LAB" guest "timeout -k 2 $LIMIT $*"; }
came() { ip -n $VERBENA_LAB_NAME -s -j link show tap0 | sed -n 's/.*"rx":{"bytes":\([0-9]*\).*/\1/p'; }
# another round trip to the guest for each look is slow
guest_listens() { "$LAB" guest "for i in \$(seq 50); do rdma resource show cm_id | grep -q LISTEN && exit 0; sleep 0.1; done; exit 1"; }
guest_is_free() { "$LAB" guest "for i in \$(seq 50); do rdma resource show cm_id | grep -q LISTEN || exit 0; sleep 0.1; done; exit 1"; }

# One attempt came too early: nobody listens there yet
early='REJECTED[,;] error:\{0,1\} 8\|UNREACHABLE, error:\{0,1\} 1\|onnection refused'
client_until_served() { # COMMAND…: sets $c
	local _
	for _ in 1 2 3 4 5; do
		"$@" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		[ $c != 0 ] && grep -q "$early" "$work/client.out" && ! gone "$server" || return 0
		sleep 0.5
	done
}

# The address of the server in the arguments of the client is @. LASTS=: the server has no end of its own.
# ONCE=: no second client for a server that has had one.
LASTS=
ONCE=
both() { # WAY SERVER… -- CLIENT…
	local way=$1 server_args=() client_args s c
	shift
	while [ "$1" != -- ]; do server_args+=("$1"); shift; done
	shift
	if [ "$way" = verbena ]; then
		client_args=("${@//@/$HERE_IP}")
		ours "${server_args[@]}" >"$work/server.out" 2>&1 </dev/null &
		server=$!
		sleep 0.3
		client_until_served theirs "${client_args[@]}"
	else
		client_args=("${@//@/$THERE_IP}")
		guest_is_free
		theirs "${server_args[@]}" >"$work/server.out" 2>&1 &
		server=$!
		guest_listens
		if [ -z "$ONCE" ]; then
			client_until_served ours "${client_args[@]}"
		else
			ours "${client_args[@]}" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		fi
	fi
	[ $c = 0 ] && [ -z "$LASTS" ] || wait_for 3 gone "$server" || stop_server "$way"
	wait "$server"
	s=$?
	[ -z "$LASTS" ] || s=0
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server ended with $s, client with $c: $*"
	said_by_both
	return 1
}
stop_server() {
	if [ "$1" = verbena ]; then
		kill "$server" 2>/dev/null
	else
		theirs pkill "'rping|ucmatose|udaddy|rdma_|rcopy|rstream|ib_'"
	fi
}

case_of() { # WAY SENTENCE SERVER… -- CLIENT…
	local sentence="$1 serves, $f: $2"
	grep -q -- "$only" <<<"$sentence" || return 0
	check "$sentence" both "$1" "${@:3}"
}
# perftest connects twice, and its server closes the port and listens anew in between. The kernel refuses who comes in that
# moment (REJ, reason 8; Verbena lets him wait), perftest's client does not survive that, and its server is left halfway: it
# answers another client's first SEND with RNR NAKs for ever. So both begin again.
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
	grep -q -- "$only" <<<"$sentence" || return 0
	check "$sentence" twice "$way" "$p" -R -F "$@" -- "$p" -R -F "$@" @
}

copies() { # WAY: what arrives is what was sent
	local to
	LASTS=1
	rm -f "$work/copy"
	if [ "$1" = verbena ]; then
		"$LAB" guest "rm -f /tmp/copy; head -c 300000 /dev/urandom >/tmp/big"
		both "$1" rcopy -- rcopy /tmp/big "@:$work/copy" || { LASTS=; return 1; }
		to=$(md5sum <"$work/copy")
		[ "$("$LAB" guest "md5sum </tmp/big")" = "$to" ] || { LASTS=; return 1; }
	else
		head -c 300000 /dev/urandom >"$work/big"
		both "$1" rcopy -- rcopy "$work/big" "@:/tmp/copy" || { LASTS=; return 1; }
		to=$(md5sum <"$work/big")
		[ "$("$LAB" guest "md5sum </tmp/copy")" = "$to" ] || { LASTS=; return 1; }
	fi
	LASTS=
}

for f in IPv4 IPv6; do
	case $f in
	IPv4) HERE_IP=192.0.2.1 THERE_IP=192.0.2.2 any=0.0.0.0 ;;
	IPv6) HERE_IP=2001:db8:2::1 THERE_IP=2001:db8:2::2 any=:: ;;
	esac
	for way in verbena rxe; do
		here=$HERE_IP there=$THERE_IP
		[ $way = verbena ] || here=$THERE_IP there=$HERE_IP # of the server, of the client
		before=$(came)
		case_of $way "rping" rping -s -a $any -C 10 -V -- rping -c -a @ -C 10 -V
		case_of $way "rping, 60000 bytes" rping -s -a $here -C 5 -S 60000 -- rping -c -a @ -C 5 -S 60000
		case_of $way "ucmatose" ucmatose -b $any -c 5 -C 10 -- ucmatose -s @ -c 5 -C 10
		case_of $way "udaddy" udaddy -b $here -c 3 -C 10 -- udaddy -s @ -b $there -c 3 -C 10
		case_of $way "rdma_client" rdma_server -s $here -- rdma_client -s @
		# rcopy takes what stands before the first colon for the address
		[ $f = IPv6 ] || ! grep -q "$only" <<<"$way serves, $f: rcopy" || check "$way serves, $f: rcopy" copies $way
		case_of $way "rstream" rstream -b $here -T v -S 16384 -C 5 -I 2 -- rstream -s @ -T v -S 16384 -C 5 -I 2
		# this perftest looks names up as IPv4's only
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

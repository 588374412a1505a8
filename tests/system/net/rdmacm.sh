#!/bin/bash
# rdmacm.sh - rdma_cm programs between two hosts
# follows: rping(1), ucmatose(1), udaddy(1), mckey(1), cmtime(1), rdma_client(1), rdma_xclient(1), rcopy(1), rstream(1), perftest(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/../../support/cm.sh"
need rping ib_send_lat
check "two hosts" hosts

# Without an adapter for lo, a listener on a loopback address serves its own host, at that host's other addresses
asks() { timeout -k 2 $((LIMIT * SLOW)) "$@" "${run[@]}" rping -c -a $there -C 3 >"$work/client.out" 2>&1 </dev/null; }
without_lo() { # LOOPBACK-ADDRESS
	local own=("${on_b[@]}" VERBENA_DEVICES=net0) s c=0
	timeout -k 2 $((LIMIT * SLOW)) "${own[@]}" "${run[@]}" rping -s -P -a "$1" >"$work/server.out" 2>&1 </dev/null & # -P: accepts any number of clients
	s=$!
	wait_for 20 asks "${own[@]}" || { c=1; said_by_both; }
	! asks "${on_a[@]}" || { c=1; echo "another host got in"; }
	kill $s
	wait $s
	return $c
}

# Port 4791 is open, but no program listens: a request is rejected (8: invalid service id), and not repeated until it
# gives up
is_refused() {
	wait_for 20 port_is_open || { echo "port 4791 is not open"; return 1; }
	! asks "${on_a[@]}" && grep -q 'RDMA_CM_EVENT_REJECTED, error 8' "$work/client.out" && return 0
	said_by_both
	return 1
}
nobody_listens() {
	local status
	start_server ibv_rc_pingpong -g $V4 -e -n 100000000 && start_client ibv_rc_pingpong -g $V4 -e -n 100000000 && is_refused
	status=$?
	kill "$client" "$server"
	wait "$client" "$server" 2>/dev/null
	return $status
}
have_gone() {
	local status broker
	wait_for 20 test ! -e "$work/b/broker.sock" || return 1
	"${on_b[@]}" "${VERBENA_BROKER:-$BUILD/src/broker/verbena-broker}" --stay >"$work/broker.out" 2>&1 &
	broker=$!
	wait_for 20 test -S "$work/b/broker.sock" && both rping -s -a $there -C 1 -- rping -c -a @ -C 1 && is_refused
	status=$?
	kill $broker
	wait $broker
	[ $status = 0 ] || cat "$work/broker.out"
	return $status
}

# The interfaces have different MTUs: no connection, instead of one that its first large message ends
mtu_is_refused() { ! asks "${on_a[@]}" && grep -q 'RDMA_CM_EVENT_REJECTED, error 26' "$work/client.out"; }
mtus_differ() {
	local s status
	ip -n $A link set net0 mtu 9000
	"${on_b[@]}" "${run[@]}" rping -s -a $there -C 1 >"$work/server.out" 2>&1 </dev/null &
	s=$!
	wait_for 20 mtu_is_refused && grep -q "cannot receive packets of 4096" "$work/client.out" && grep -q "can only receive packets of 1024" "$work/server.out"
	status=$?
	[ $status = 0 ] || said_by_both
	ip -n $A link set net0 mtu 1500
	kill $s
	wait $s
	return $status
}

# AGAIN: a datagram may be lost, and then udaddy waits for it forever
for f in IPv4 IPv6; do
	case $f in
	IPv4) here=$V4_A there=$V4_B any=0.0.0.0 lo=127.0.0.1 group=239.9.8.7 ;;
	IPv6) here=$V6_A there=$V6_B any=:: lo=::1 group=ff0e::9:8:7 ;;
	esac
	check "rping, $f" crossing 2000 both rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
	check "rping, any address, $f" crossing 2000 both rping -s -a $any -C 5 -V -- rping -c -a @ -C 5 -V
	check "rping, $lo where lo is no adapter" without_lo $lo
	check "a host whose programs do not listen, $f" nobody_listens
	check "another MTU at the other end, $f" mtus_differ
	check "a host whose programs have gone, $f" have_gone
	check "rping, 60000 bytes, $f" crossing 1000000 both rping -s -a $there -C 10 -S 60000 -- rping -c -a @ -C 10 -S 60000
	check "ucmatose, 20 connections, $f" crossing 20000 both ucmatose -b $any -c 20 -C 10 -- ucmatose -s @ -c 20 -C 10
	AGAIN=1 check "udaddy, 5 datagram ids, $f" crossing 5000 both udaddy -b $there -c 5 -C 10 -- udaddy -s @ -b $here -c 5 -C 10
	check "rdma_server and rdma_client, $f" crossing 500 both rdma_server -s $there -- rdma_client -s @
	check "cmtime, 20 connections, $f" crossing 10000 cmtimes $there 20
	for t in a b n; do
		check "rstream -T $t, $f" crossing 300000 both rstream -b $there -T v -T $t -S 65536 -C 5 -I 2 -- rstream -s @ -T v -T $t -S 65536 -C 5 -I 2
	done
	check "mckey, $f" crossing 500 group $group $there $here
done
there=$V4_B
# rcopy takes the part before the first colon for the address
check "rcopy" crossing 3000000 copies
# its server takes the first address from getaddrinfo(3), which is IPv4
check "rdma_xserver and rdma_xclient" crossing 500 both rdma_xserver -c r -- rdma_xclient -c r -s @
check "rdma_xserver and rdma_xclient, XRC" crossing 500 both rdma_xserver -c x -- rdma_xclient -c x -s @
# this perftest resolves names to IPv4 addresses only
for p in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat ib_atomic_bw ib_atomic_lat; do
	check "$p -R" crossing 4000 both $p -R -F -n 50 -- $p -R -F -n 50 @
done
for p in ib_send_bw ib_send_lat; do
	check "$p -R -c UD" crossing 4000 both $p -R -F -c UD -s 1024 -n 50 -- $p -R -F -c UD -s 1024 -n 50 @
done
check "ib_send_bw -R -q 8" crossing 1000000 both ib_send_bw -R -F -q 8 -s 4096 -n 50 -- ib_send_bw -R -F -q 8 -s 4096 -n 50 @
finish

#!/bin/bash
# rxe.sh - Verbena and the Linux kernel's RoCEv2 adapter in an emulated guest, each as server and as client
# follows: IBA volume 1, annex A17 (RoCEv2)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
lab_needs ibv_rc_pingpong ib_send_bw
V4=1 V6=2 HERE_V4=192.0.2.1 THERE_V4=192.0.2.2
lab_boots vblab
AGAIN=1 # a guest whose emulated processors get no time hangs, even when the kernel talks to itself
(cd "$ROOT/tests/system/net" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/verify" verify.c plan.c link.c -libverbs) || exit 1
check "the guest gets the program that verifies" "$LAB" put "$work/verify"

there() { VERBENA_LAB_S=$((LIMIT + 10)) "$LAB" guest "timeout -k 2 $LIMIT $*"; }
# polling the guest with a round trip each time is slow
guest_listens() { "$LAB" guest "for i in \$(seq 100); do busybox netstat -ltn | grep -q ':$1 ' && exit 0; sleep 0.1; done; exit 1"; }

joined() { # PROGRAM …: the exit status of both
	local s c
	wait "$client"
	c=$?
	[ $c = 0 ] || wait_for 5 gone "$server" || kill "$server" 2>/dev/null
	wait "$server"
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server ended with $s, client with $c: $*"
	said_by_both
	return 1
}

# PROGRAM ARGS…: the program names no adapter: roce_tap0 here, rxe0 there
verbena_serves() {
	free_port
	timeout -k 2 $((LIMIT * SLOW)) "${on_here[@]}" "${run[@]}" "$1" -d roce_tap0 "${@:2}" -p "$port" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 server_up
	there "$(basename_in_guest "$1")" -d rxe0 "${@:2}" -p "$port" $HERE_V4 >"$work/client.out" 2>&1 &
	client=$!
	joined "$@"
}
rxe_serves() {
	free_port
	there "$(basename_in_guest "$1")" -d rxe0 "${@:2}" -p "$port" >"$work/server.out" 2>&1 &
	server=$!
	guest_listens "$port"
	timeout -k 2 $((LIMIT * SLOW)) "${on_here[@]}" "${run[@]}" "$1" -d roce_tap0 "${@:2}" -p "$port" $THERE_V4 >"$work/client.out" 2>&1 </dev/null &
	client=$!
	joined "$@"
}
basename_in_guest() { case $1 in */verify) echo /root/verify ;; *) echo "$1" ;; esac; }

LIMIT=40
for f in IPv4 IPv6; do
	g=$V4
	[ $f = IPv4 ] || g=$V6
	for way in verbena_serves rxe_serves; do
		say="${way%%_*} serves, $f"
		before=$(came)
		for t in rc uc ud; do
			check "$say: verify, $t" $way "$work/verify" -g $g -t $t -l 16384 -n 500000 $([ $t = rc ] || echo -k send,send-imm,write,write-imm)
			check "$say: ibv_${t}_pingpong" $way ibv_${t}_pingpong -g $g -s 1000 -n 50 -c
		done
		check "$say: verify, events, few receives" $way "$work/verify" -g $g -e -r 3 -l 16384 -n 200000
		check "$say: the data came by the cable" test $(($(came) - before)) -gt 2000000
		check "$say: ib_send_bw" $way ib_send_bw -F -x $g -n 50
		# rxe offers more outstanding reads than perftest can set
		check "$say: ib_read_bw" $way ib_read_bw -F -x $g -o 16 -n 50
		[ $f = IPv4 ] || continue
		for p in ib_write_bw ib_send_lat ib_write_lat; do check "$say: $p" $way $p -F -x $g -n 50; done
		for p in ib_atomic_bw ib_read_lat ib_atomic_lat; do check "$say: $p" $way $p -F -x $g -o 16 -n 50; done
	done
done
check "verbena serves: ib_write_bw, 4 queue pairs, both ways" verbena_serves ib_write_bw -F -x $V4 -q 4 -b -s 8192 -n 30
check "rxe serves: ib_send_bw, UD" rxe_serves ib_send_bw -F -x $V4 -c UD -s 1024 -n 50
check "verbena serves: path MTU 256" verbena_serves "$work/verify" -g $V4 -m 256 -l 8192 -n 200000

# first the guest's end of the cable drops packets that it sends, then ours does
for bad in "loss 2%" "duplicate 3%" "delay 1ms reorder 95%"; do
	check "the guest's end of the cable turns bad: $bad" "$LAB" guest "tc qdisc replace dev eth0 root netem $bad"
	check "$bad: verbena serves" verbena_serves "$work/verify" -g $V4 -T 17 -l 8192 -n 200000
	check "$bad: rxe serves" rxe_serves "$work/verify" -g $V4 -T 17 -l 8192 -n 200000
done
"$LAB" guest "tc qdisc del dev eth0 root"
export VERBENA_FAULT=loss=2,dup=2,reorder=2
check "$VERBENA_FAULT: verbena serves" verbena_serves "$work/verify" -g $V4 -T 17 -l 8192 -n 200000
check "$VERBENA_FAULT: rxe serves" rxe_serves "$work/verify" -g $V4 -T 17 -l 8192 -n 200000
finish

#!/bin/bash
# hardware.sh - programs on Verbena's libraries get the guest kernel's rxe0 and siw0 first, and Verbena's devices beside them
# follows: verbena(7), VERBENA_HARDWARE; docs/hardware.md
# SPDX-License-Identifier: MIT
# usage: hardware.sh [PATTERN]   only the cases whose sentence matches
# HARDWARE_LAB: the name of a running guest, which is left running
source "$(dirname "$0")/lab/lib.sh"
lab_needs ibv_rc_pingpong rping strip
sanitized && { skip hardware "the guest has no sanitizer's library"; exit 0; }
only=${1:-.}
lab_boots vbhw "${HARDWARE_LAB:-}"
AGAIN=1 # a guest whose emulated processors get no time hangs, even when the kernel talks to itself

# --- Verbena in the guest: the build tree's own places, without debug information ---
v=$work/v
mkdir -p "$v"/src/{abi,tools,broker} "$v/storage"
for lib in libibverbs librdmacm; do strip -g -o "$v/src/abi/$lib.so.1" "$BUILD/src/abi/$lib.so.1"; done
strip -g -o "$v/verbena" "$VERBENA"
strip -g -o "$v/src/tools/libverbena-paths.so" "$BUILD/src/tools/libverbena-paths.so"
strip -g -o "$v/src/broker/verbena-broker" "$BUILD/src/broker/verbena-broker"
ldd "$v/src/abi/libibverbs.so.1" | awk '/libisal/ { print $3 }' | xargs -r -I{} cp -L {} "$v/src/abi/"
"${CC:-gcc}" -std=gnu17 -O2 -w -o "$v/device_names" "$HERE/device_names.c" -libverbs || exit 1
"${CC:-gcc}" -std=gnu17 -O2 -w -o "$v/rdmap" "$HERE/rdmap.c" -lrdmacm -libverbs || exit 1
"${CC:-gcc}" -std=gnu17 -O2 -w -D_GNU_SOURCE -o "$v/dmabuf" "$HERE/dmabuf.c" "$ROOT"/tests/system/local/{dmabuf_case,regions_here,pair}.c -libverbs || exit 1
storage=$BUILD/storage/verbena-target with_target=
if [ -x "$storage" ]; then
	with_target=1
	strip -g -o "$v/storage/verbena-target" "$storage"
	ldd "$storage" | awk '/lib(uring|json-c|ssl|crypto)\./ { print $3 }' | xargs -r -I{} cp -L {} "$v/storage/"
fi
cat >"$v/env" <<'END'
V=/root/v/verbena VERBENA_RUNTIME=/tmp/vbrun VERBENA_BROKER=/root/v/src/broker/verbena-broker
mkdir -p -m 700 $VERBENA_RUNTIME
export V VERBENA_RUNTIME VERBENA_BROKER
ours() { timeout -k 1 30 $V run "$@"; }
plain() { timeout -k 1 30 "$@"; }
names() { echo | ours /root/v/device_names; }
# A server is up when it listens at the port of ibv_rc_pingpong and perftest, or with a device of the kernel; one that has
# Verbena's alone is not in these tables
up() { for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 0.1
	grep -q ':4853 [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6 && return 0
	rdma resource show cm_id | grep -q LISTEN && sleep 0.3 && return 0
done; }
# pair HOW SERVER… -- CLIENT…: both succeed
pair() {
	how=$1 server=
	shift
	while [ "$1" != -- ]; do server="$server $1"; shift; done
	shift
	[ $how = plain ] || server="$V run $server"
	timeout -k 1 30 $server >/tmp/server 2>&1 </dev/null &
	pid=$!
	up
	$how "$@" >/tmp/client 2>&1 </dev/null
	c=$?
	[ $c = 0 ] || kill $pid 2>/dev/null
	wait $pid
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server $s, client $c"
	tail -n 5 /tmp/server /tmp/client
	return 1
}
END
check "the guest gets Verbena" "$LAB" put "$v"
[ $failed = 0 ] || exit 1

there() { VERBENA_LAB_S=90 "$LAB" guest ". /root/v/env; $*"; }
has() { # SENTENCE COMMANDS…
	local sentence=$1
	shift
	[[ $sentence =~ $only ]] || return 0
	check "$sentence" there "$*"
}

# --- lists and queries ---
has "the kernel's device comes first, then Verbena's for the other interfaces" 'n=$(names); echo "$n"; [ "$n" = "rxe0 roce_lo" ]'
has "VERBENA_HARDWARE=only: no device of Verbena's" 'export VERBENA_HARDWARE=only; n=$(names); echo "$n"; [ "$n" = rxe0 ]'
has "VERBENA_HARDWARE=off: no device of the kernel" 'export VERBENA_HARDWARE=off; n=$(names); echo "$n"; [ "$n" = "roce_eth0 roce_lo" ]'
has "hardware without a node in /dev leaves its interface to Verbena" 'mount -t tmpfs none /dev/infiniband || exit 1; n=$(names); umount /dev/infiniband; echo "$n"; [ "$n" = "roce_eth0 roce_lo" ]'
has "an iWARP line for its interface adds that adapter only" '$V link add verb0 type iwarp netdev eth0 || exit 1; n=$(names); $V link delete verb0; echo "$n"; [ "$n" = "rxe0 verb0 roce_lo" ]'
has "an interface that VERBENA_DEVICES names has both" 'export VERBENA_DEVICES=eth0; n=$(names); echo "$n"; [ "$n" = "rxe0 roce_eth0" ]'
has "ibv_devinfo prints what it prints without Verbena" 'ours ibv_devinfo -v -d rxe0 >/tmp/a; plain ibv_devinfo -v -d rxe0 >/tmp/b; diff /tmp/a /tmp/b && [ -s /tmp/a ]'
has "the launcher's tree shows both" 'l=$(ours ls /sys/class/infiniband); echo $l; [ "$(echo $l)" = "roce_lo rxe0" ] && [ "$(ours cat /sys/class/infiniband/rxe0/node_guid)" = "$(cat /sys/class/infiniband/rxe0/node_guid)" ]'
has "the launcher's tree has the kernel's nodes" 'ours ls /dev/infiniband | grep -qx uverbs0 && ours ls /dev/infiniband | grep -qx rdma_cm && ours ls /dev/infiniband | grep -qx uverbs4096'
has "rdma link shows both" 'l=$(ours rdma link); echo "$l"; echo "$l" | grep -q "rxe0/1.*netdev eth0" && echo "$l" | grep -q "roce_lo/1.*netdev lo"'
has "verbena devices names the hardware" '$V devices | grep -q "^rxe0 .*programs get first" && $V devices --json | grep -q "\"hardware\": true, \"used\": true"'
has "verbena doctor names the hardware" '$V doctor 2>&1 | grep -q "kernel has RDMA devices (rxe0.*get them before"'

# --- verbs ---
for t in rc uc ud; do has "ibv_${t}_pingpong on rxe0" "pair ours ibv_${t}_pingpong -d rxe0 -g 1 -n 100 -- ibv_${t}_pingpong -d rxe0 -g 1 -n 100 192.0.2.2"; done
has "ibv_srq_pingpong on rxe0" "pair ours ibv_srq_pingpong -d rxe0 -g 1 -n 100 -- ibv_srq_pingpong -d rxe0 -g 1 -n 100 192.0.2.2"
has "ibv_rc_pingpong with events on rxe0" "pair ours ibv_rc_pingpong -e -d rxe0 -g 1 -n 100 -- ibv_rc_pingpong -e -d rxe0 -g 1 -n 100 192.0.2.2"
has "ibv_rc_pingpong on Verbena's device beside it" "pair ours ibv_rc_pingpong -d roce_lo -g 1 -- ibv_rc_pingpong -d roce_lo -g 1 127.0.0.1"
has "ib_send_lat on rxe0" "pair ours ib_send_lat -F -d rxe0 -x 1 -n 100 -- ib_send_lat -F -d rxe0 -x 1 -n 100 192.0.2.2"
has "ib_write_bw on rxe0" "pair ours ib_write_bw -F -d rxe0 -x 1 -n 100 -- ib_write_bw -F -d rxe0 -x 1 -n 100 192.0.2.2"

# --- rdma_cm: the route decides ---
has "rping on rxe0" "pair ours rping -s -a 192.0.2.2 -C 3 -v -- rping -c -a 192.0.2.2 -C 3 -v"
has "rping: a server on all addresses, a client by rxe0" "pair ours rping -s -C 3 -v -- rping -c -a 192.0.2.2 -C 3 -v"
has "rping: a server on all addresses, a client by Verbena's device" "pair ours rping -s -C 3 -v -- rping -c -a 127.0.0.1 -C 3 -v"
has "one server has connections by rxe0 and by Verbena's device" 'timeout -k 1 60 $V run rping -s -P -C 5 >/tmp/server 2>&1 & pid=$!; sleep 2
	ours rping -c -a 192.0.2.2 -C 5 -v >/tmp/c1; a=$?; ours rping -c -a 127.0.0.1 -C 5 -v >/tmp/c2; b=$?; kill $pid; wait $pid; echo $a $b
	[ $a$b = 00 ] && grep -q rdma-ping-4 /tmp/c1 && grep -q rdma-ping-4 /tmp/c2'
has "VERBENA_HARDWARE=only: rping" "export VERBENA_HARDWARE=only; pair ours rping -s -C 3 -v -- rping -c -a 192.0.2.2 -C 3 -v"
has "a port that another program has is refused on all addresses" 'timeout -k 1 20 rping -s -C 1 >/dev/null 2>&1 & pid=$!; sleep 1; ours rping -s -C 1 >/tmp/second 2>&1; s=$?; kill $pid; wait $pid; cat /tmp/second; [ $s != 0 ] && grep -q rdma_bind_addr /tmp/second'
has "a Verbena program and one without Verbena, on rxe0" "timeout 30 rping -s -C 3 >/tmp/server 2>&1 & pid=\$!; sleep 2; ours rping -c -a 192.0.2.2 -C 3 -v && wait \$pid"
has "rdma_client, a synchronous id" "pair ours rdma_server -- rdma_client -s 192.0.2.2"
has "rdma_xclient, XRC or RC" "pair ours rdma_xserver -- rdma_xclient -s 192.0.2.2"
has "ucmatose on rxe0" "pair ours ucmatose -- ucmatose -s 192.0.2.2"
has "ucmatose on Verbena's device" "pair ours ucmatose -- ucmatose -s 127.0.0.1"
has "udaddy on rxe0" "pair ours udaddy -- udaddy -s 192.0.2.2"
has "ib_send_lat -R on rxe0" "pair ours ib_send_lat -F -R -n 50 -- ib_send_lat -F -R -n 50 192.0.2.2"

# --- storage: the guest's kernel is the host, and the target is on its rxe0 too ---
[ -z "$with_target" ] || has "the kernel's NVMe host writes to verbena-target, both on rxe0" 'nqn=nqn.2026-01.test:hw; modprobe nvme-rdma; export LD_LIBRARY_PATH=/root/v/storage
	timeout -k 1 60 $V run /root/v/storage/verbena-target --listen 0.0.0.0 --transport auto --nqn $nqn --export memory:16M >/tmp/target 2>&1 & pid=$!; sleep 4; cat /tmp/target
	rdma resource show cm_id | grep LISTEN | grep -q comm.verbena-target && timeout 20 nvme connect -t rdma -n $nqn -a 192.0.2.2 -s 4420 && sleep 2
	dd if=/dev/zero of=/dev/nvme0n1 bs=64k count=20 oflag=direct; d=$?; rdma resource show qp | grep -q comm.verbena-target; q=$?
	nvme disconnect -n $nqn; kill $pid; wait $pid; t=$?; echo $d $q $t; [ $d$q$t = 000 ]'

# --- the suite of pyverbs: each test has the result that it has without Verbena. The guest gets this machine's Python ---
guest_gets_pyverbs() {
	local python=/usr/bin/python3 from=/usr/share/doc/rdma-core/tests
	mkdir -p "$work/py/suite" && cp "$from"/* "$work/py/suite/" && { gunzip -qf "$work"/py/suite/*.gz || true; } || return 1
	{
		realpath -s $python "$(realpath $python)"
		ldd "$(realpath $python)" /usr/lib/python3/dist-packages/pyverbs/*.so | awk '/=> \// { print $3 }' | grep -vE '/lib(ibverbs|rdmacm|c|m)\.so'
		ls /usr/lib/x86_64-linux-gnu/lib{mlx4,mlx5,efa}.so.1
		find /usr/lib/python3.[0-9]* \( -name test -o -name tests -o -name __pycache__ -o -name 'config-*' \) -prune -o -type f -print
		find /usr/lib/python3/dist-packages/pyverbs -name '*.so' -o -name '*.py'
	} 2>/dev/null | sort -u >"$work/py/list"
	tar -chf "$work/py/python.tar" -T "$work/py/list" 2>/dev/null
	VERBENA_LAB_S=200 "$LAB" put "$work/py/python.tar" "$work/py/suite" && VERBENA_LAB_S=100 "$LAB" guest "tar -C / -xf python.tar && rm python.tar && python3 -c 'import pyverbs.device'"
}
if [[ "the pyverbs suite" =~ $only ]] && /usr/bin/python3 -c 'import pyverbs.device' 2>/dev/null && [ -d /usr/share/doc/rdma-core/tests ]; then
	check "the guest gets pyverbs" guest_gets_pyverbs
	modules=$(printf 'tests.test_%s ' addr cq cq_events cqex device mr parent_domain pd qp qpex rdmacm relaxed_ordering shared_pd atomic fork)
	VERBENA_LAB_S=500 check "the pyverbs suite gives what it gives without Verbena" "$LAB" guest ". /root/v/env; cd /root/suite
		suite() { timeout -k 2 200 \"\$@\" python3 run_tests.py --dev rxe0 --gid 1 -v $modules 2>&1 | grep -E ' \.\.\. (ok|skipped|FAIL|ERROR)' | sed 's/skipped .*/skipped/' | sort; }
		suite env >/tmp/plain; suite \$V run >/tmp/ours; wc -l /tmp/plain /tmp/ours; diff /tmp/plain /tmp/ours && [ \$(grep -c 'ok\$' /tmp/ours) -gt 50 ]"
fi

# --- from host to host: the guest's program on rxe0, ours here on Verbena's device ---
from_here() {
	VERBENA_LAB_S=40 "$LAB" guest ". /root/v/env; ours rping -s -C 5" >"$work/server.out" 2>&1 &
	local server=$!
	sleep 4
	timeout -k 2 30 "${on_here[@]}" "${run[@]}" rping -c -a 192.0.2.2 -C 5 -v || { wait "$server"; cat "$work/server.out"; return 1; }
	wait "$server"
}
[[ "rping from Verbena here to rxe0 there" =~ $only ]] && check "rping from Verbena here to rxe0 there" from_here

# --- a VLAN on the hardware's interface: its addresses are GIDs of rxe0 ---
vlan='ip link show v7 >/dev/null 2>&1 || { modprobe 8021q && ip link add link eth0 name v7 type vlan id 7 && ip addr add 192.0.7.2/24 dev v7 && ip link set v7 up && sleep 1; }'
has "a VLAN on the interface of rxe0 is rxe0's, and no adapter of Verbena's" "$vlan;"' n=$(names); echo "$n"; [ "$n" = "rxe0 roce_lo" ] && ours ibv_devinfo -v -d rxe0 | grep "GID.*::ffff:192.0.7.2"'
has "VERBENA_DEVICES adds Verbena's" "$vlan;"' export VERBENA_DEVICES=v7; n=$(names); echo "$n"; [ "$n" = "rxe0 roce_v7" ]'
has "rping by the VLAN is on rxe0" "$vlan;"' timeout -k 1 30 $V run rping -s -a 192.0.7.2 -C 3 >/tmp/server 2>&1 & pid=$!; for _ in $(seq 20); do rdma resource show cm_id | grep 192.0.7.2; r=$?; [ $r != 0 ] || break; sleep 0.5; done
	ours rping -c -a 192.0.7.2 -C 3 -v; c=$?; wait $pid; s=$?; cat /tmp/server; echo $r $c $s; [ $r$c$s = 000 ]'
has "rping: a server on all addresses, a client by the VLAN" "$vlan; pair ours rping -s -C 3 -v -- rping -c -a 192.0.7.2 -C 3 -v"
has "ibv_rc_pingpong by the GID of the VLAN" "$vlan;"' i=$(ours ibv_devinfo -v -d rxe0 | sed -n "s/.*GID\[ *\([0-9]*\)\]:.*::ffff:192.0.7.2.*/\1/p"); pair ours ibv_rc_pingpong -d rxe0 -g $i -n 100 -- ibv_rc_pingpong -d rxe0 -g $i -n 100 192.0.7.2'
vlan_from_here() { # Verbena's adapter on a VLAN of the cable here, rxe0 there
	local at=("${on_here[@]}")
	VERBENA_LAB_S=60 "$LAB" guest ". /root/v/env; $vlan; ours rping -s -a 192.0.7.2 -C 5" >"$work/server.out" 2>&1 &
	local server=$!
	sleep 5
	ip -n "$VERBENA_LAB_NAME" link add link tap0 name v7 type vlan id 7 && ip -n "$VERBENA_LAB_NAME" addr add 192.0.7.1/24 dev v7 && ip -n "$VERBENA_LAB_NAME" link set v7 up || return 1
	timeout -k 2 30 "${at[@]}" "${run[@]}" rping -c -a 192.0.7.2 -C 5 -v
	local status=$?
	wait $server || { status=1; cat "$work/server.out"; }
	ip -n "$VERBENA_LAB_NAME" link del v7
	return $status
}
if ! ip -n "$VERBENA_LAB_NAME" link add link tap0 name v0 type vlan id 8 2>/dev/null; then
	skip "rping from a VLAN here" "this kernel has no VLANs"
elif ip -n "$VERBENA_LAB_NAME" link del v0 && [[ "rping from a VLAN here to rxe0's VLAN there" =~ $only ]]; then
	check "rping from a VLAN here to rxe0's VLAN there" vlan_from_here
fi

# --- a bridge and a bond on the interface of rxe1: whose they are, for the kernel and for programs here ---
above='ip link show v0 >/dev/null 2>&1 || { modprobe veth && modprobe bonding max_bonds=0 && ip link add v0 type veth peer name v1 && ip link add v2 type veth peer name v3 &&
	for i in v0 v1 v2 v3; do ip link set $i up; done && rdma link add rxe1 type rxe netdev v0 && sleep 1; } || exit 1
	# bond PORT: v0 and v2 are below, and this one is active; the kernel moves the GIDs later
	bond() { ip link add bond1 type bond mode active-backup miimon 100 && ip addr add 10.9.0.1/24 dev bond1 && ip link set bond1 up &&
		for i in v0 v2; do ip link set $i down && ip link set $i master bond1; done && for _ in $(seq 50); do
		ip link set bond1 type bond active_slave $1 2>/dev/null && ip -d link show bond1 | grep -q "active_slave $1" && sleep 2 && return 0; sleep 0.2; done; ip -d link show bond1; ip link del bond1; false; }
	# served PROGRAM…: the device of the kernel with which this server on 10.9.0.1 listens, or nothing
	served() { timeout -k 1 20 "$@" -s -a 10.9.0.1 -C 1 >/tmp/o 2>&1 </dev/null & pid=$!; for _ in $(seq 25); do
		l=$(rdma resource show cm_id | sed -n "s/^link \([a-z0-9]*\).* src-addr 10.9.0.1:.*/\1/p"); [ -z "$l" ] && kill -0 $pid 2>/dev/null || break; sleep 0.2; done
		kill $pid 2>/dev/null; wait $pid 2>/dev/null; echo "$l"; }
	verdict() { p=$(served rping) o=$(served $V run rping) n=$(names); echo "kernel: $p, here: $o, list: $n"; }
	pings() { pair ours rping -s -a 10.9.0.1 -C 3 -- rping -c -a 10.9.0.1 -C 3 -v; };'
has "a bridge on the interface of rxe1 is rxe1's" "$above"' ip link add br1 type bridge && ip link set v0 master br1 && ip addr add 10.9.0.1/24 dev br1 && ip link set br1 up && sleep 1
	verdict; pings; r=$?; ip link del br1; [ "$p,$o,$r" = rxe1,rxe1,0 ] && ! echo "$n" | grep roce_br1'
has "a bond is of rxe1 while the interface of rxe1 is its active port" "$above"' bond v0 || exit 1; verdict; pings; r=$?; ip link del bond1; [ "$p,$o,$r" = rxe1,rxe1,0 ] && ! echo "$n" | grep roce_bond1'
has "a bond is Verbena's while another port is active" "$above"' bond v2 || exit 1; verdict; pings; r=$?; ip link del bond1; [ "$p,$o,$r" = ,,0 ] && echo "$n" | grep roce_bond1'
"$LAB" guest "rdma link del rxe1; ip link del v0; ip link del v2" >/dev/null 2>&1

# --- devices come and go ---
has "programs list, open and connect while rxe0 goes and comes" '(for i in 1 2 3 4 5 6; do rdma link del rxe0; sleep 0.5; rdma link add rxe0 type rxe netdev eth0; sleep 0.5; done) & l=$!
	n=0; while kill -0 $l 2>/dev/null; do ours ibv_devinfo >/tmp/o 2>&1; s=$?; [ $s -lt 124 ] || [ $s = 255 ] || { cat /tmp/o; echo $s; exit 1; }
	pair ours rping -s -a 127.0.0.1 -C 2 -- rping -c -a 127.0.0.1 -C 2 || exit 1; n=$((n + 1)); done; wait $l; echo rounds $n; [ $n -gt 0 ] && [ "$(names)" = "rxe0 roce_lo" ]'
has "without the VLAN the list is as before" 'ip link del v7 2>/dev/null; [ "$(names)" = "rxe0 roce_lo" ]'
has "a device that goes and comes while a program runs" 'mkfifo /tmp/ask$$; ours /root/v/device_names </tmp/ask$$ >/tmp/names & exec 9>/tmp/ask$$
	ask() { echo >&9; for _ in $(seq 50); do [ $(wc -l </tmp/names) -ge $1 ] && return 0; sleep 0.1; done; }
	ask 1; rdma link del rxe0; ask 2; rdma link add rxe0 type rxe netdev eth0; ask 3; exec 9>&-; wait; rm /tmp/ask$$; cat /tmp/names
	[ "$(sed -n 1p /tmp/names)" = "rxe0 roce_lo" ] && [ "$(sed -n 2p /tmp/names)" = "roce_eth0 roce_lo" ] && [ "$(sed -n 3p /tmp/names)" = "rxe0 roce_lo" ]'
has "without a device of the kernel the system's library is not loaded" 'rdma link del rxe0; LD_DEBUG=files ours ibv_devices >/tmp/files 2>&1; s=$?; rdma link add rxe0 type rxe netdev eth0
	[ $s = 0 ] && grep -q roce_eth0 /tmp/files && ! grep -q "/usr/lib/.*libibverbs.so.1\|/lib/x86.*libibverbs.so.1" /tmp/files'

# --- dma-bufs of vgem, on Verbena's adapters. rxe has UDP port 4791 as long as it is loaded ---
dmabuf_there() { # KIND: "" for RoCE, "iwarp:". The guest's memory is a dma-buf; both ends write, read and send
	local kinds=send,send-inv,write,read,write-imm,cmp-swap,fetch-add server i c=1 s
	VERBENA_LAB_S=90 "$LAB" guest ". /root/v/env; export VERBENA_HARDWARE=off VERBENA_DEVICES=$1eth0; timeout -k 1 60 \$V run /root/v/rdmap -s 192.0.2.2 -g -k $kinds" >"$work/server.out" 2>&1 &
	server=$!
	for i in $(seq 40); do
		VERBENA_DEVICES=$1tap0 timeout -k 2 40 "${on_here[@]}" "${run[@]}" "$v/rdmap" -c 192.0.2.2 -k $kinds && c=0 && break
		! gone $server || break
		sleep 0.5
	done
	wait $server
	s=$?
	[ $c$s = 00 ] && return
	echo "server $s, client $c"
	cat "$work/server.out"
	return 1
}
if [[ "regions of real dma-bufs in shared memory, regions of real dma-bufs packet by packet, a peer here and a real dma-buf there, by RoCE, a peer here and a real dma-buf there, by iWARP" =~ $only ]]; then
	check "the guest has vgem, and rxe goes" "$LAB" guest 'modprobe vgem && [ -c /dev/dri/card0 ] && rdma link del rxe0 && modprobe -r rdma_rxe'
	check "regions of real dma-bufs in shared memory" there 'export VERBENA_HARDWARE=off; timeout -k 1 60 $V run /root/v/dmabuf'
	check "regions of real dma-bufs packet by packet" there 'export VERBENA_HARDWARE=off VERBENA_WIRE=always VERBENA_TEST_COUNT=2; timeout -k 1 80 $V run /root/v/dmabuf'
	check "a peer here and a real dma-buf there, by RoCE" dmabuf_there ""
	check "a peer here and a real dma-buf there, by iWARP" dmabuf_there iwarp:
	check "rxe is back" "$LAB" guest 'modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0'
fi

# --- siw0, the kernel's iWARP ---
if why=$(siw_module); then
	siw() {
		"$LAB" put "$work/siw.ko" || return 1
		"$LAB" guest "rdma link del rxe0; modprobe -a iw_cm libcrc32c; lsmod | grep -q ^siw || insmod /root/siw.ko; rdma link add siw0 type siw netdev eth0; rdma link show siw0/1 | grep -q ACTIVE"
	}
	check "the guest has siw0" siw
	has "siw0 comes first" 'n=$(names); echo "$n"; [ "$n" = "siw0 roce_lo" ]'
	has "a VLAN stays Verbena's, because siw0 has its own interface alone" "$vlan;"' n=$(names); ip link del v7; echo "$n"; [ "$n" = "siw0 roce_v7 roce_lo" ] || [ "$n" = "siw0 roce_lo roce_v7" ]'
	has "ibv_devinfo on siw0" 'ours ibv_devinfo -v -d siw0 >/tmp/a; plain ibv_devinfo -v -d siw0 >/tmp/b; diff /tmp/a /tmp/b && [ -s /tmp/a ]'
	has "rping on siw0" 'tc qdisc replace dev lo root netem delay 3ms limit 10000; pair ours rping -s -a 192.0.2.2 -C 3 -v -- rping -c -a 192.0.2.2 -C 3 -v; s=$?; tc qdisc del dev lo root; exit $s'
	"$LAB" guest "rdma link del siw0; rdma link add rxe0 type rxe netdev eth0"
else
	skip siw "no siw.ko for the guest: $why"
fi
finish

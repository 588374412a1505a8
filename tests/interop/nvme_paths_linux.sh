#!/bin/bash
# nvme_paths_linux.sh - the Linux kernel's native multipath, in the emulated guest, over two gateways of one Ceph image, by TCP and by RDMA: killed and cut off under load
# By hand: CEPH=long, ten minutes (PATHS_S) of accidents at random, with a file system in the guest, libverbena-nvme and the nbdkit plugin
# follows: docs/ceph.md, "Several targets of one image"; nvme(1); tests/interop/lab
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/nvme.sh"
lab_needs ceph-mon ceph-mgr ceph-osd monmaptool rbd rados python3 bridge
sanitized && { skip paths_linux "a cluster, a guest and sanitizers take too long together"; exit 0; }
TARGET=$BUILD/storage/verbena-target
[ -x "$TARGET" ] || { skip paths_linux "verbena-target is not built"; exit 0; }
lab_boots vbnvp
there 'modprobe nvme-tcp && modprobe nvme-rdma && grep -q Y /sys/module/nvme_core/parameters/multipath' >/dev/null || { skip paths_linux "the guest's kernel has no NVMe multipath"; exit 0; }
source "$ROOT/tests/support/ceph.sh"
at() { "${on_here[@]}" "${@:2}"; } # the cluster is where the guest's cable ends
address_of() { echo 198.51.100.1; }
declare -A member=() member_port=([a]=4420 [b]=4421) member_number=([a]=11 [b]=12) # gateways
images=(s) jumping=() # jumping: makes the time of day of a program jump
L=$VERBENA_LAB_NAME

paths_cleanup() {
	local status=$? name
	[ $BASHPID = $$ ] || return
	for name in "${!member[@]}"; do kill -9 "$(program_of "${member[$name]}")" 2>/dev/null; done
	ceph_kill KILL "${!ceph_pids[@]}"
	for name in a b; do ip netns del "$L$name" 2>/dev/null; done
	(exit $status)
	lab_cleanup
}
trap paths_cleanup EXIT

# --- the network: each gateway is a host of its own, with one interface to the hosts and one to the cluster ---
bridge_of() { # NAME ADDRESS
	ip -n "$L" link add "$1" type bridge && ip -n "$L" link set "$1" up && ip -n "$L" addr add "$2/24" dev "$1"
}
network_up() {
	local name kind
	ip -n "$L" addr flush dev tap0 && bridge_of hosts 192.0.2.1 && bridge_of ceph 198.51.100.1 && ip -n "$L" link set tap0 master hosts || return 1
	for name in a b; do
		mkdir -pm 700 "$work/run$name"
		ip netns add "$L$name" && ip -n "$L$name" link set lo up || return 1
		for kind in hosts ceph; do
			ip -n "$L" link add "$kind$name" type veth peer name $kind netns "$L$name" && ip -n "$L" link set "$kind$name" master $kind up &&
				ip -n "$L$name" link set $kind up || return 1
		done
		ip -n "$L$name" addr add "192.0.2.${member_number[$name]}/24" dev hosts
		ip -n "$L$name" addr add "198.51.100.${member_number[$name]}/24" dev ceph
	done
}
# A port that forwards nothing: neither side is told
link_of() { # hosts|ceph NAME disabled|forwarding
	local -A states=([disabled]=0 [forwarding]=3)
	bridge -n "$L" link set dev "$1$2" state "${states[$3]}"
}

# --- the cluster and the gateways ---
cluster_up() {
	local image
	ceph_up && osds_up 3 || { tail -n 20 "$cluster"/*.out; return 1; }
	printf '%s\n' "osd pool create disks 4" "osd pool application enable disks rbd" | ceph && clean || return 1
	for image in "${images[@]}"; do client rbd create "disks/$image" --size 64M || return 1; done
}
in_member() { ip netns exec "$L$1" env "VERBENA_RUNTIME=$work/run$1" "CLOCK_JUMP=$work/jump" "${@:2}"; } # NAME COMMAND…
gateway() { # NAME
	rm -f "$work/$1.out"
	in_member "$1" "${run[@]}" "${jumping[@]}" "$TARGET" --transport auto --gateway "$1" --nqn $NQN \
		"${images[@]/#/--export=rbd:disks/}" --ceph-conf "$cluster/ceph.conf" --listen "192.0.2.${member_number[$1]}" --port "${member_port[$1]}" \
		>"$work/$1.out" 2>>"$work/$1.err" </dev/null &
	member[$1]=$!
	wait_for 60 gateway_speaks "$1" && grep -q nvme+rdma "$work/$1.out" && return 0 # on a busy machine one that was killed took 36 s to open three images again
	echo "$1 does not serve"
	tail -n 5 "$work/$1.err"
	return 1
}
gateway_speaks() { grep -qs nvme+rdma "$work/$1.out" || gone "${member[$1]}"; }
status_of() { in_member "$1" timeout -k 5 10 "$TARGET" status --port "${member_port[$1]}" >"$work/$1.status" 2>&1; } # NAME
writes_in() { status_of "$1" && grep -q '"writer": "here"' "$work/$1.status"; }                                    # NAME
waits_in() { status_of "$1" && grep -q '"writer": "another"' "$work/$1.status" && ! grep -q '"shut_out": true' "$work/$1.status"; } # NAME
gateways() { gateway a && wait_for 10 writes_in a && gateway b; }
connect_both() {
	there "set -- 192.0.2.11 tcp 4420 192.0.2.12 rdma 4421
		while [ \$# -gt 0 ]; do nvme connect -n $NQN -a \$1 -t \$2 -s \$3 -k 5 -c 1 -l 900 || exit 1; shift 3; done
		for i in \$(seq 100); do [ -b /dev/nvme0n1 ] && [ \$(cat /sys/class/nvme/nvme*/nvme*c*n1/ana_state | sort | tr '\n' ,) = non-optimized,optimized, ] && exit 0; sleep 0.1; done
		nvme list-subsys; exit 1"
}
no_errors() { there '! dmesg | grep -i "i/o error.*nvme0n1\|critical .* error\|EXT4-fs error" && [ $(nvme list-subsys | tee /dev/stderr | grep -c "live *$\|live optimized\|live non-optimized") = 2 ]'; }

# --- the short form ---
# Each write is read back soon. It lasts until it is told to end, because a gateway only notices that it is cut off while
# it has requests
load() {
	there "rm -f /run/stop; until [ -e /run/stop ]; do fio --name=v --filename=/dev/nvme0n1 --allow_file_create=0 --ioengine=libaio --direct=1 --iodepth=4 \
		--rw=randwrite --bs=4k --size=48M --verify=crc32c --verify_fatal=1 --verify_backlog=32 --time_based --runtime=10 || exit 1; done" >"$work/through" 2>&1 &
	through=$!
	sleep 2
}
load_came_through() { there ': >/run/stop' && came_through; }
kills() { # NAME
	kill -9 "$(program_of "${member[$1]}")" && { wait "${member[$1]}" 2>/dev/null; true; }
}
dies() { kills "$1" && wait_for 20 writes_in "$2"; }         # NAME OTHER: the other writes then
comes_back() { gateway "$1" && sleep 1.5; }                  # NAME; and the guest has connected again, which it tries each second
cut_off() { link_of ceph "$1" disabled && wait_for 20 writes_in "$2" && tells_hosts "$1"; } # NAME OTHER
tells_hosts() { wait_for 10 grep -q "namespace 1: its cluster does not answer" "$work/$1.err"; }  # NAME
rejoins() { link_of ceph "$1" forwarding && wait_for 30 waits_in "$1"; } # NAME
short() {
	load
	check "the gateway that writes is killed under load, the other takes over" dies a b
	check "it comes back" comes_back a
	check "the other one is cut off from the cluster, not killed: it says so, the first takes over" cut_off b a
	check "… and is back when the cluster is" rejoins b
	check "the host has found each block as it wrote it" load_came_through
	check "… without an error" no_errors
}

# --- the long form: three hosts, each with a disk of its own; all disks by both gateways ---
URL=nvme+auto://192.0.2.11:4420,192.0.2.12:4421/$NQN
file_system() {
	there 'mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /mnt/d && mount /dev/nvme0n1 /mnt/d && : >/run/probes && rm -f /run/stop'
}
# Blocks with a number, each written durably before the next; pauses of more than 0.2 s are noted
probes() {
	there 'n=0; while [ ! -e /run/stop ]; do n=$((n + 1)); from=$(date +%s%3N)
			printf %4096d $n | dd of=/mnt/d/number bs=4096 iflag=fullblock oflag=direct conv=notrunc,fdatasync 2>/run/dd || { cat /run/dd; exit 1; }
			ms=$(($(date +%s%3N) - from)); echo $n >/run/number; [ $ms -lt 200 ] || echo $ms >>/run/probes
		done'
}
files() { # SECONDS
	there "fio --name=v --directory=/mnt/d --ioengine=libaio --direct=1 --iodepth=4 --rw=randwrite --bs=4k --size=24M --fsync=32 \
		--verify=crc32c --verify_fatal=1 --verify_backlog=32 --time_based --runtime=$1"
}
loads_up() { # SECONDS
	file_system || return 1
	files "$1" >"$work/through" 2>&1 &
	through=$!
	probes >"$work/probes" 2>&1 &
	probing=$!
	at 0 "${run[@]}" "$BUILD/tests/system/storage/storage_gateway_host" "$URL?nsid=2" $(($1 + 300)) >"$work/own" 2>&1 &
	own=$!
	at 0 "${run[@]}" nbdkit -f -U "$work/nbd" "$BUILD/storage/nbdkit-verbena-plugin.so" url="$URL?nsid=3" >"$work/nbdkit" 2>&1 &
	nbdkit=$!
	wait_for 30 test -S "$work/nbd" && wait_for 60 grep -q ready "$work/own" || { cat "$work/own" "$work/nbdkit"; return 1; }
	fio --name=n --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd" --rw=randwrite --bs=4k --size=32M --iodepth=4 --rate_iops=300 --verify=crc32c \
		--verify_fatal=1 --verify_backlog=32 --verify_state_save=0 --time_based --runtime="$1" >"$work/fio" 2>&1 &
	by_nbd=$!
}
# late STATUS COMMAND: a write that stays in a gateway that is cut off while the other takes over, and COMMAND before it is joined again. Status 3: the write landed
late() {
	local status=0 step pid
	rm -f "$work"/{steps,go} && mkfifo "$work/steps" "$work/go" || return 1
	at 0 timeout -k 5 200 "$BUILD/tests/system/storage/storage_gateway_host" "nvme+tcp://192.0.2.11:4420/$NQN" "nvme+tcp://192.0.2.12:4421/$NQN" late <"$work/go" >"$work/steps" 2>&1 &
	pid=$!
	exec {go}>"$work/go"
	while read -r step; do
		echo "$step"
		case $step in
		halt) link_of ceph a disabled && echo >&"$go" ;;
		continue) "$2" && link_of ceph a forwarding && wait_for 90 waits_in a && sleep 2 && echo >&"$go" ;;
		esac
	done <"$work/steps"
	exec {go}>&-
	wait $pid || status=$?
	link_of ceph a forwarding
	wait_for 60 all_well && [ $status = "$1" ]
}
unfenced() { ceph osd blocklist clear; } # quickly: the longer the cut, the later TCP tries again
kinds=(killed stopped cluster hosts both clock)
accident() { # KIND NAME SECONDS: and its end
	case $1 in
	killed) kills "$2" && sleep "$3" && gateway "$2" ;;
	stopped) kill -STOP "$(program_of "${member[$2]}")" && sleep "$3" && kill -CONT "$(program_of "${member[$2]}")" ;;
	cluster) link_of ceph "$2" disabled && sleep "$3" && link_of ceph "$2" forwarding ;;
	hosts) link_of hosts "$2" disabled && sleep "$3" && link_of hosts "$2" forwarding ;;
	both) link_of ceph "$2" disabled && link_of hosts "$2" disabled && sleep "$3" && link_of ceph "$2" forwarding && link_of hosts "$2" forwarding ;;
	clock) printf '%-20d' $(((RANDOM % 2 * 2 - 1) * 86400)) | dd of="$work/jump" conv=notrunc status=none && sleep "$3" ;;
	esac
}
all_well() { # each disk is written by one of the gateways, and the guest has both paths
	status_of a && status_of b && [ "$(cat "$work"/[ab].status | grep -c '"writer": "here"')" = ${#images[@]} ] &&
		[ "$(cat "$work"/[ab].status | grep -c '"writer": "another"')" = ${#images[@]} ] && ! grep -q '"shut_out": true' "$work"/[ab].status &&
		[ "$(there 'nvme list-subsys | grep -c " live"')" = 2 ]
}
# The longest interruption of libverbena-nvme and of the guest since the last time, in ms
interruptions() {
	local said
	said=$(grep -c longest "$work/own")
	kill -USR1 "$(program_of $own)"
	wait_for 30 eval '[ $(grep -c longest "$work/own") -gt '"$said ]"
	echo "$(grep longest "$work/own" | tail -1 | sed 's/[^0-9]//g') $(there 'sort -n /run/probes | tail -1; : >/run/probes')"
}
declare -A longest=() times=()
accidents() { # SECONDS
	local until=$((SECONDS + $1)) kind name mine guests mine_before guests_before
	RANDOM=${SEED:=$$}
	echo "SEED=$SEED"
	interruptions >/dev/null
	while [ $SECONDS -lt $until ]; do
		kind=${kinds[RANDOM % ${#kinds[@]}]} name=$([ $((RANDOM % 2)) = 0 ] && echo a || echo b)
		writes_in "$name" && kind+=" (the owner)"
		accident "${kind% (*}" $name $((4 + RANDOM % 5)) || { echo "$kind of $name"; return 1; }
		wait_for 90 all_well || { echo "after $kind of $name"; cat "$work"/[ab].{status,err}; there 'nvme list-subsys; dmesg | tail -30'; return 1; }
		sleep $((1 + RANDOM % 3))
		read -r mine guests <<<"$(interruptions | tr '\n' ' ')"
		echo "$(date +%T) $kind: $name; longest request of libverbena-nvme $mine ms, durable write in the guest ${guests:-below 200} ms" | tee -a "$work/figures"
		times[$kind]=$((${times[$kind]:-0} + 1))
		read -r mine_before guests_before <<<"${longest[$kind]:-0 0}"
		longest[$kind]="$((mine > mine_before ? mine : mine_before)) $((guests > guests_before ? guests : guests_before))"
	done
	for kind in "${!times[@]}"; do echo "# $kind: ${times[$kind]} times; longest interruption of libverbena-nvme and in the guest, ms: ${longest[$kind]:-0 0}"; done | tee -a "$work/figures"
}
guest_came_through() { # the last number that was answered is there after another mount
	wait $through || { cat "$work/through"; return 1; }
	there ': >/run/stop' && wait $probing || { cat "$work/probes"; return 1; }
	there 'umount /mnt/d && e2fsck -fn /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/d && echo found $(head -c 4096 /mnt/d/number) of $(cat /run/number) &&
		[ $(head -c 4096 /mnt/d/number) = $(cat /run/number) ] && umount /mnt/d'
}
own_came_through() {
	kill "$(program_of $own)" && wait $own
	local status=$?
	tail -5 "$work/own"
	return $status
}
nbd_came_through() {
	wait $by_nbd
	local status=$?
	grep "lat.*max=\|err=\|verify:" "$work/fio" | tee -a "$work/figures"
	kill "$(program_of $nbdkit)" && wait $nbdkit
	[ $status = 0 ] && ! grep -q "verify:\|error=" "$work/fio"
}
jumps() {
	echo 0 >"$work/jump" && truncate -s 4096 "$work/jump"
	jumping=(bash -c 'LD_PRELOAD=$0${LD_PRELOAD:+:$LD_PRELOAD} exec "$@"' "$BUILD/tests/system/storage/libjumping_clock.so")
}
long() {
	local seconds=${PATHS_S:-600}
	check "a write of a gateway that is cut off does not land when it is joined again" late 0 true
	check "… it does if the blocklist is lifted, so the test notices it" late 3 unfenced
	check "a file system in the guest, libverbena-nvme and nbdkit's plugin have a load" loads_up $((seconds + 60))
	check "gateways are killed, stopped and cut off for $seconds s, and come back" accidents "$seconds"
	check "the guest has found each block, the last durable write, and a clean file system" guest_came_through
	check "… without an error" no_errors
	check "libverbena-nvme has found each block" own_came_through
	check "nbdkit's plugin has found each block" nbd_came_through
	cat "$work/figures" "$work"/[ab].err
}

check "each gateway is a host" network_up
[ "${CEPH:-}" != long ] || { images=(s o n) VERBENA_LAB_S=$((${PATHS_S:-600} + 400)); need nbdkit fio; jumps; }
check "a cluster comes up beside the guest" cluster_up
check "two gateways serve one image" gateways
check "the host has two paths to one disk, one of them optimized" connect_both
if [ "${CEPH:-}" = long ]; then long; else short; fi
check "the host leaves" disconnect
exit $((failed > 0))

#!/bin/bash
# nvme_paths_linux.sh - the Linux kernel's native multipath, in the emulated guest, over two gateways of one Ceph image, by TCP and by RDMA: killed under load
# follows: docs/ceph.md, "Several targets of one image"; nvme(1); tests/interop/lab
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/nvme.sh"
lab_needs ceph-mon ceph-mgr ceph-osd monmaptool rbd rados python3
sanitized && { skip paths_linux "a cluster, a guest and sanitizers take too long together"; exit 0; }
TARGET=$BUILD/storage/verbena-target
[ -x "$TARGET" ] || { skip paths_linux "verbena-target is not built"; exit 0; }
lab_boots vbnvp
there 'modprobe nvme-tcp && modprobe nvme-rdma && grep -q Y /sys/module/nvme_core/parameters/multipath' >/dev/null || { skip paths_linux "the guest's kernel has no NVMe multipath"; exit 0; }
source "$ROOT/tests/support/ceph.sh"
at() { "${on_here[@]}" "${@:2}"; } # all of it is where the guest's cable ends
paths_cleanup() {
	local status=$? name
	[ $BASHPID = $$ ] || return
	for name in "${!member[@]}"; do kill -9 "$(program_of "${member[$name]}")" 2>/dev/null; done
	ceph_kill KILL "${!ceph_pids[@]}"
	(exit $status)
	lab_cleanup
}
declare -A member=() member_port=([a]=4420 [b]=4421) # gateways
trap paths_cleanup EXIT

cluster_up() {
	ceph_up && wait_for 60 osds_up 3 || { tail -n 20 "$cluster"/*.out; return 1; }
	printf '%s\n' "osd pool create disks 4" "osd pool application enable disks rbd" | ceph && wait_for 60 clean && client rbd create disks/s --size 64M
}
gateway() { # NAME
	rm -f "$work/$1.out"
	at 0 "${run[@]}" "$TARGET" --transport auto --gateway "$1" --nqn $NQN --export rbd:disks/s --ceph-conf "$cluster/ceph.conf" --listen 192.0.2.1 --port "${member_port[$1]}" \
		>"$work/$1.out" 2>>"$work/$1.err" </dev/null &
	member[$1]=$!
	wait_for 30 grep -q nvme+rdma "$work/$1.out"
}
writes_in() { at 0 timeout -k 5 10 "$TARGET" status --port "${member_port[$1]}" >"$work/$1.status" 2>&1 && grep -q '"writer": "here"' "$work/$1.status"; } # NAME
gateways() { gateway a && wait_for 10 writes_in a && gateway b; }
connect_both() {
	there "for w in 'tcp -s 4420' 'rdma -s 4421'; do nvme connect -n $NQN -a 192.0.2.1 -k 5 -c 1 -l 600 -t \$w || exit 1; done
		for i in \$(seq 100); do [ -b /dev/nvme0n1 ] && [ \$(cat /sys/class/nvme/nvme*/nvme*c*n1/ana_state | sort | tr '\n' ,) = non-optimized,optimized, ] && exit 0; sleep 0.1; done
		nvme list-subsys; exit 1"
}
# Each write is read back soon
load() {
	there "fio --name=v --filename=/dev/nvme0n1 --allow_file_create=0 --ioengine=libaio --direct=1 --iodepth=4 --rw=randwrite --bs=4k --size=48M \
		--verify=crc32c --verify_fatal=1 --verify_backlog=32 --time_based --runtime=$1" >"$work/through" 2>&1 &
	through=$!
	sleep 2
}
dies() { # NAME OTHER: killed; the other writes then
	kill -9 "$(program_of "${member[$1]}")" && { wait "${member[$1]}" 2>/dev/null; wait_for 20 writes_in "$2"; }
}
comes_back() { gateway "$1" && sleep 1.5; } # NAME; and the guest has connected again, which it tries each second
no_errors() { there '! dmesg | grep -i "i/o error.*nvme0n1\|critical .* error" && [ $(nvme list-subsys | tee /dev/stderr | grep -c "live *$\|live optimized\|live non-optimized") = 2 ]'; }

check "a cluster comes up beside the guest" cluster_up
check "two gateways serve one image" gateways
check "the host has two paths to one disk, one of them optimized" connect_both
load 14
check "the gateway that writes is killed under load, the other takes over" dies a b
check "it comes back" comes_back a
check "the other one is killed, the first takes over again" dies b a
check "… and comes back" comes_back b
check "the host has found each block as it wrote it" came_through
check "… without an error" no_errors
check "the host leaves" disconnect
exit $((failed > 0))

#!/bin/bash
# nvme_rdma_linux.sh - the Linux kernel's own NVMe over RDMA host, on rxe in the emulated guest, and verbena-target on Verbena
# follows: nvme(1); tests/interop/lab
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/nvme.sh"
lab_needs
TARGET=$BUILD/storage/verbena-target
[ -x "$TARGET" ] || { skip rdma_linux "verbena-target is not built"; exit 0; }
lab_boots vbnvr
there 'command -v nvme && modprobe nvme-rdma' >/dev/null || { skip rdma_linux "the guest has no nvme-cli, or its kernel no nvme-rdma"; exit 0; }

serve() { # ADDRESS
	rm -f "$work/target.out"
	"${on_here[@]}" "${run[@]}" "$TARGET" --listen "$1" --transport auto --nqn $NQN \
		--mapped --export "$work/a.img" --export memory:64M >"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 grep -q nvme+rdma "$work/target.out"
}
truncate -s 256M "$work/a.img"
check "the target serves" serve ::
check "its subsystem is discovered by IPv4" there "nvme discover -t rdma -a 192.0.2.1 -s 4420 | grep $NQN"
check "… and by IPv6" there "nvme discover -t rdma -a 2001:db8:2::1 -s 4420 | grep $NQN"
check "the host connects" connects rdma -s 4420 -c 1 -a 192.0.2.1
check "compare, zeroes, verify, deallocate, flush" there 'set -e; nvme write-zeroes /dev/nvme0n2 -s 0 -c 7; nvme compare /dev/nvme0n2 -s 0 -c 0 -z 512 -d /dev/zero
	nvme verify /dev/nvme0n2 -s 0 -c 7; nvme dsm /dev/nvme0n2 -d 1 -s 0 -b 8; nvme flush /dev/nvme0n2 -n 2'
check "a file system is made, filled, checked and trimmed" there 'set -e; mkfs.ext4 -q /dev/nvme0n1; mkdir -p /m; mount /dev/nvme0n1 /m; cp -r /usr/bin /m
	cd /usr/bin; find . -type f | xargs md5sum >/run/sums; umount /m; fsck.ext4 -fn /dev/nvme0n1; mount /dev/nvme0n1 /m; cd /m/bin; md5sum --quiet -c /run/sums
	cd /; fstrim /m; umount /m'
check "what was written is read" verifies /dev/nvme0n1 --rw=randrw --bsrange=512-256k --size=24M
check "… from memory" verifies /dev/nvme0n2 --rw=randrw --bsrange=512-256k --size=24M
works_on 'dd if=/dev/nvme0n1 of=/dev/null bs=1M iflag=direct; mkfs.ext4 -q /dev/nvme0n1; mount /dev/nvme0n1 /m
	for i in 1 2 3 4 5 6; do cp -r /usr/bin /m/$i; sync; done; umount /m; fsck.ext4 -fn /dev/nvme0n1'
check "the target is killed in the middle of it" killed
check "another takes its place" serve ::
check "the host goes on as if nothing had been" came_through
check "the host leaves" disconnect
check "it comes back by IPv6" connects rdma -s 4420 -c 1 -a 2001:db8:2::1
check "what was written is read by IPv6" verifies /dev/nvme0n1 --rw=randrw --bsrange=4k-64k --size=8M
check "the target ends well with a host connected" ended_well
exit $((failed > 0))

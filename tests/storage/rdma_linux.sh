#!/bin/bash
# rdma_linux.sh - the Linux kernel's own NVMe over RDMA host, on rxe in the emulated guest, and verbena-target on Verbena
# follows: nvme(1); tests/lab
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../lib.sh"
need ip qemu-system-x86_64 mmdebstrap nc
TARGET=$BUILD/storage/verbena-target
[ -x "$TARGET" ] || { skip rdma_linux "verbena-target is not built"; exit 0; }
[ "$(id -u)" = 0 ] || { skip rdma_linux "only root makes network namespaces"; exit 0; }
[ -c /dev/net/tun ] || { skip rdma_linux "there is no /dev/net/tun"; exit 0; }

export VERBENA_LAB_NAME=vbnvr$$ VERBENA_LAB_S=200
LAB=${LAB:-$HERE/../lab/lab}
NQN=nqn.2026-01.test:linux
target=
lab_cleanup() {
	local status=$?
	trap - EXIT INT TERM
	[ -z "$target" ] || kill -9 "$target" 2>/dev/null
	"$LAB" down
	(exit $status)
	cleanup
}
trap lab_cleanup EXIT
trap 'exit 130' INT TERM

check "the guest boots" "$LAB" up
[ $failed = 0 ] || exit 1
there() { "$LAB" guest "$*"; }
there 'command -v nvme && modprobe nvme-rdma' >/dev/null || { skip rdma_linux "the guest has no nvme-cli, or its kernel no nvme-rdma"; exit 0; }

serve() { # ADDRESS
	rm -f "$work/target.out"
	ip netns exec "$VERBENA_LAB_NAME" env "VERBENA_RUNTIME=$work/run" "${run[@]}" "$TARGET" --listen "$1" --transport auto --nqn $NQN \
		--mapped --export "$work/a.img" --export memory:64M >"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 grep -q nvme+rdma "$work/target.out"
}
ended_well() { # it was told to
	kill -TERM "$target"
	wait "$target"
	local status=$?
	target=
	[ $status = 0 ] && ! grep -q Sanitizer "$work/target.err"
}
killed() {
	kill -KILL "$target"
	wait "$target" 2>/dev/null
	target=
}
connect() { there "nvme connect -t rdma -s 4420 -n $NQN -k 60 -c 1 -l 100 $* && for i in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/nvme0n2 ] && exit 0; sleep 1; done; exit 1"; }
disconnect() { there "nvme disconnect -n $NQN"; }
verifies() { # DEVICE ARGS…
	there "fio --name=v --filename=$1 --ioengine=libaio --direct=1 --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 ${*:2}"
}

truncate -s 256M "$work/a.img"
check "the target serves" serve ::
check "its subsystem is discovered by IPv4" there "nvme discover -t rdma -a 192.0.2.1 -s 4420 | grep $NQN"
check "… and by IPv6" there "nvme discover -t rdma -a 2001:db8:2::1 -s 4420 | grep $NQN"
check "the host connects" connect -a 192.0.2.1
check "compare, zeroes, verify, deallocate, flush" there 'set -e; nvme write-zeroes /dev/nvme0n2 -s 0 -c 7; nvme compare /dev/nvme0n2 -s 0 -c 0 -z 512 -d /dev/zero
	nvme verify /dev/nvme0n2 -s 0 -c 7; nvme dsm /dev/nvme0n2 -d 1 -s 0 -b 8; nvme flush /dev/nvme0n2 -n 2'
check "a file system is made, filled, checked and trimmed" there 'set -e; mkfs.ext4 -q /dev/nvme0n1; mkdir -p /m; mount /dev/nvme0n1 /m; cp -r /usr/bin /m
	cd /usr/bin; find . -type f | xargs md5sum >/run/sums; umount /m; fsck.ext4 -fn /dev/nvme0n1; mount /dev/nvme0n1 /m; cd /m/bin; md5sum --quiet -c /run/sums
	cd /; fstrim /m; umount /m'
check "what was written is read" verifies /dev/nvme0n1 --rw=randrw --bsrange=512-256k --size=24M
check "… from memory" verifies /dev/nvme0n2 --rw=randrw --bsrange=512-256k --size=24M
there 'dd if=/dev/nvme0n1 of=/dev/null bs=1M iflag=direct; mkfs.ext4 -q /dev/nvme0n1; mount /dev/nvme0n1 /m
	for i in 1 2 3 4 5 6; do cp -r /usr/bin /m/$i; sync; done; umount /m; fsck.ext4 -fn /dev/nvme0n1' >"$work/through" 2>&1 &
through=$!
sleep 3
check "the target is killed in the middle of it" killed
check "another takes its place" serve ::
came_through() { wait $through || { cat "$work/through"; return 1; }; }
check "the host goes on as if nothing had been" came_through
check "the host leaves" disconnect
check "it comes back by IPv6" connect -a 2001:db8:2::1
check "what was written is read by IPv6" verifies /dev/nvme0n1 --rw=randrw --bsrange=4k-64k --size=8M
check "the target ends well with a host connected" ended_well
exit $failed

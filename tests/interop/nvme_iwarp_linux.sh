#!/bin/bash
# nvme_iwarp_linux.sh - the Linux kernel's NVMe over RDMA on siw, in the emulated guest: its host and verbena-target, its target and our client
# follows: nvme(1), nvmet in configfs; tests/interop/lab
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/nvme.sh"
lab_needs
TARGET=$BUILD/storage/verbena-target CLIENT=$BUILD/tests/system/storage/storage_client_peer DISK=$BUILD/storage/verbena-disk
[ -x "$TARGET" ] && [ -x "$CLIENT" ] || { skip iwarp_linux "verbena-target is not built"; exit 0; }
lab_boots vbnvi
here=("${on_here[@]}" "${run[@]}")

# --- the guest's target with our client: first over rxe ---
# nvmet serves a file in memory; its RDMA port uses the adapter with that address
nvmet() {
	there "set -e; modprobe -a nvmet nvmet-tcp nvmet-rdma; mount -t configfs c /sys/kernel/config 2>/dev/null || :
		cd /sys/kernel/config/nvmet; s=\$PWD/subsystems/$NQN; truncate -s 8M /run/disk; mkdir \$s \$s/namespaces/1
		echo 1 >\$s/attr_allow_any_host; cd \$s/namespaces/1; echo /run/disk >device_path; echo 1 >buffered_io; echo 1 >enable"
}
opens() { # NUMBER TRANSPORT PORT
	there "set -e; cd /sys/kernel/config/nvmet; p=ports/$1; mkdir \$p; echo ipv4 >\$p/addr_adrfam; echo $2 >\$p/addr_trtype
		echo 192.0.2.2 >\$p/addr_traddr; echo $3 >\$p/addr_trsvcid; ln -s \$PWD/subsystems/$NQN \$p/subsystems/"
}
closes() { there "cd /sys/kernel/config/nvmet/ports/$1 && rm subsystems/* && cd .. && rmdir $1"; } # NUMBER
client() { SLOW_PEER=1 timeout -k 2 $((120 * SLOW)) "${here[@]}" "$CLIENT" "$@"; }
lists() { timeout -k 2 $((60 * SLOW)) "${here[@]}" "$DISK" list "$1" | grep -F "$2"; } # URL PART
works_with() { # TRANSPORT PORT
	lists "nvme+$1://192.0.2.2:$2" "nvme+$1://192.0.2.2:$2/$NQN" && client "nvme+$1://192.0.2.2:$2/$NQN" "$1"
}
if there 'modprobe -a nvmet nvmet-tcp nvmet-rdma'; then
	has_nvmet=1
	check "the guest has a target" nvmet
	check "it listens by TCP" opens 1 tcp 4420
	check "nvmet-tcp: it is listed, written and read" works_with tcp 4420
	check "it listens by RDMA, on rxe" opens 2 rdma 4420
	check "nvmet-rdma on rxe: it is listed, written and read" works_with rdma 4420
	check "auto takes RDMA" client "nvme+auto://192.0.2.2:4420/$NQN" rdma # its log lists only the port that is asked
	check "it listens by RDMA no more" closes 2
	check "auto takes TCP then" client "nvme+auto://192.0.2.2:4420/$NQN" tcp
else
	has_nvmet=
	skip "nvmet" "the guest's kernel has none"
fi

# --- siw in place of rxe ---
why=$(siw_module) || { skip iwarp_linux "no siw.ko for the guest: $why"; exit $((failed > 0)); }
# tests/interop/siw.sh explains why the answers must be slow
adapter() {
	"$LAB" put "$work/siw.ko" && there "rdma link del rxe0; modprobe -a iw_cm libcrc32c nvme-rdma; insmod /root/siw.ko
		rdma link add siw0 type siw netdev eth0; tc qdisc replace dev eth0 root netem delay 3ms limit 10000; rdma link show siw0/1 | grep -q ACTIVE"
}
check "the guest has siw0" adapter
[ $failed = 0 ] || exit 1
export VERBENA_DEVICES=iwarp:tap0
if [ -n "$has_nvmet" ]; then
	check "it listens by RDMA, on siw" opens 3 rdma 4422
	check "nvmet-rdma on siw: it is listed, written and read" works_with rdma 4422
	VERBENA_MPA=crc check "nvmet-rdma on siw, with CRC" client "nvme+rdma://192.0.2.2:4422/$NQN" rdma
fi

# --- the guest's host with verbena-target ---
serve() { # ADDRESS TRANSPORT: sets $port, the port for RDMA
	rm -f "$work/target.out"
	"${here[@]}" "$TARGET" --listen "$1" --transport "$2" --port 4420 --nqn $NQN --mapped --export "$work/a.img" --export memory:64M \
		>"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 grep -qs nvme+rdma "$work/target.out" && port=$(sed -n 's,^nvme+rdma://.*:\([0-9]*\)/.*,\1,p' "$work/target.out")
}
truncate -s 128M "$work/a.img"
check "verbena-target serves by TCP and by iWARP" serve 192.0.2.1 auto
check "its port for iWARP is in the log of that for TCP" there "modprobe nvme-tcp; nvme discover -t tcp -a 192.0.2.1 -s 4420 | grep -A5 'trtype: *rdma' | grep $port"
check "the host connects there" connects rdma -c 1 -a 192.0.2.1 -s "$port"
check "the host leaves" disconnect
check "the target ends well" ended_well
check "it serves by iWARP alone" serve :: rdma
check "its subsystem is discovered by IPv4" there "nvme discover -t rdma -a 192.0.2.1 -s 4420 | grep $NQN"
check "… and by IPv6" there "nvme discover -t rdma -a 2001:db8:2::1 -s 4420 | grep $NQN"
check "the host connects" connects rdma -c 1 -a 192.0.2.1 -s 4420
check "compare, zeroes, verify, deallocate, flush" there 'set -e; nvme write-zeroes /dev/nvme0n2 -s 0 -c 7; nvme compare /dev/nvme0n2 -s 0 -c 0 -z 512 -d /dev/zero
	nvme verify /dev/nvme0n2 -s 0 -c 7; nvme dsm /dev/nvme0n2 -d 1 -s 0 -b 8; nvme flush /dev/nvme0n2 -n 2'
check "a file system is made, filled, checked and trimmed" there 'set -e; mkfs.ext4 -q /dev/nvme0n1; mkdir -p /m; mount /dev/nvme0n1 /m; cp -r /usr/bin/[a-d]* /m
	cd /usr/bin; find [a-d]* -type f | xargs md5sum >/run/sums; umount /m; fsck.ext4 -fn /dev/nvme0n1; mount /dev/nvme0n1 /m; cd /m; md5sum --quiet -c /run/sums
	cd /; fstrim /m; umount /m'
check "what was written is read" verifies /dev/nvme0n1 --rw=randrw --bsrange=512-256k --size=8M
check "… from memory" verifies /dev/nvme0n2 --rw=randrw --bsrange=512-256k --size=8M
works_on 'dd if=/dev/nvme0n1 of=/dev/null bs=1M count=8 iflag=direct; mkfs.ext4 -q /dev/nvme0n1; mount /dev/nvme0n1 /m
	for i in 1 2 3 4; do cp -r /usr/bin/[a-d]* /m; sync; done; umount /m; fsck.ext4 -fn /dev/nvme0n1'
check "the target is killed in the middle of it" killed
check "another takes its place" serve :: rdma
check "the host goes on as if nothing had been" came_through
check "the host leaves" disconnect
check "it comes back by IPv6" connects rdma -c 1 -a 2001:db8:2::1 -s 4420
check "what was written is read by IPv6" verifies /dev/nvme0n1 --rw=randrw --bsrange=4k-64k --size=4M
check "the target ends well with a host connected" ended_well
exit $((failed > 0))

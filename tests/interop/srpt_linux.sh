#!/bin/bash
# srpt_linux.sh - the Linux kernel's own SRP target (LIO with ib_srpt), on rxe in the emulated guest, and srp:// disks of
# verbena-disk and the library on Verbena
# follows: LIO in configfs (/sys/kernel/config/target), as targetcli(8) sets it up; tests/interop/lab
# SPDX-License-Identifier: MIT
# SRP_LAB: the name of a running guest, which is left running
source "$(dirname "$0")/lab/lib.sh"
lab_needs
DISK=$BUILD/storage/verbena-disk
[ -x "$DISK" ] || { skip srpt_linux "verbena-disk is not built"; exit 0; }
lab_boots vbsrpt "${SRP_LAB:-}"
export VERBENA_LAB_S=100
there() { "$LAB" guest "$*"; }
there 'modprobe -a target_core_mod target_core_file && modprobe ib_srpt' >/dev/null ||
	{ skip srpt_linux "the guest's kernel has no ib_srpt"; exit 0; }

# configfs takes links by absolute names. By rdma_cm, ib_srpt names an initiator by the target's own address, in the kernel's
# long form
serves() {
	there 'set -e; mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; truncate -s 64M /run/lio.img
		lio=/sys/kernel/config/target; cd $lio; mkdir -p core/fileio_0/disk; echo fd_dev_name=/run/lio.img,fd_dev_size=67108864 >core/fileio_0/disk/control
		echo 1 >core/fileio_0/disk/enable; mkdir -p srpt; echo 5555 >srpt/discovery_auth/rdma_cm_port
		wwn=$(cut -d: -f5-8 /sys/class/infiniband/rxe0/ports/1/gids/0); tpg=$lio/srpt/$wwn/$wwn; mkdir -p $tpg; mkdir $tpg/lun/lun_0
		ln -s $lio/core/fileio_0/disk $tpg/lun/lun_0/disk
		for a in 192.0.2.1 192.0.2.2 2001:0db8:0002:0000:0000:0000:0000:0002; do mkdir $tpg/acls/$a $tpg/acls/$a/lun_0; ln -s $tpg/lun/lun_0 $tpg/acls/$a/lun_0/lun; done; echo 1 >$tpg/enable; cat $tpg/enable'
}
check "LIO serves a file by ib_srpt" serves
[ $failed = 0 ] || { there 'dmesg | tail -20'; exit 1; }
guid=$(there cat /sys/module/ib_srpt/parameters/srpt_service_guid | tr -dc '0-9a-fx' | sed 's/^0x//')
url=srp://192.0.2.2:5555/$guid
disk() { timeout -k 5 100 "${on_here[@]}" "${run[@]}" "$DISK" "$@"; }

info() { disk info "$url" | tee "$work/info" && grep -q 'size  *67108864' "$work/info" && grep -q 'LIO-ORG' "$work/info"; }
check "info describes LIO's unit" info
lists() { disk list "$url" | grep -q "$guid?lun=0\$"; }
[ $failed = 0 ] || { there "dmesg | tail -20"; exit 1; }
check "list names it" lists
strange() { ! disk info "srp://192.0.2.2:5555/1:2" 2>"$work/err" && grep -q 'no such port' "$work/err"; }
check "another port is refused, with the reason" strange
head -c 20000001 /dev/urandom >"$work/source"
copies() { disk --queues=2 copy "$work/source" "$url" && disk copy "$url" "$work/back" && cmp -n 20000001 "$work/source" "$work/back"; }
check "what is copied there is copied back" copies
same_there() { [ "$(there 'head -c 20000001 /run/lio.img | md5sum')" = "$(md5sum <"$work/source")" ]; }
check "... and is in the guest's file" same_there
zeroes() { # a copy of zeroes is WRITE SAME
	truncate -s 8M "$work/zeroes"
	disk copy "$work/zeroes" "$url" && disk read "$url" 0 8m | cmp - "$work/zeroes"
}
check "zeroes are written" zeroes
# LIO's file has no cache, so LIO refuses FUA
plugin=$BUILD/storage/nbdkit-verbena-plugin.so
if [ -e "$plugin" ] && command -v nbdkit >/dev/null && command -v qemu-io >/dev/null; then
	durable() {
		timeout -k 5 100 "${on_here[@]}" "${run[@]}" nbdkit -U - "$plugin" url="$url" \
			--run 'qemu-io -f raw -c "write -f -P 7 4k 12k" -c "read -P 7 4k 12k" "$uri"' >"$work/fua" 2>&1 &&
			grep -q '^wrote' "$work/fua" && grep -q '^read' "$work/fua" && ! grep -qi fail "$work/fua" || { cat "$work/fua"; return 1; }
	}
	check "writes with FUA by nbdkit" durable
fi
check "random reads and writes at once" disk --seconds=3 --write=40 --depth=64 bench "$url"
by_ipv6() { disk info "srp://[2001:db8:2::2]:5555/$guid"; }
check "it logs in by IPv6" by_ipv6
# the target forgets its sessions while requests are outstanding
comes_back() {
	disk --json --seconds=8 --write=40 --depth=16 bench "$url" >"$work/bench" &
	local bench=$!
	sleep 3
	there 'cd /sys/kernel/config/target/srpt/*/*/ && echo 0 >enable; sleep 1; echo 1 >enable' || return 1
	wait $bench && python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert r["reconnects"] >= 1, r' "$work/bench"
}
check "requests go on after the target was disabled and enabled" comes_back
[ -z "$borrowed" ] || there 'rmmod ib_srpt' >/dev/null 2>&1
exit $((failed > 0))

#!/bin/bash
# srp_linux.sh - the Linux kernel's own SRP initiator, on rxe in the emulated guest, and verbena-srp-target on Verbena
# follows: ib_srp's add_target by rdma_cm; sg_persist(8), blkdiscard(8), fio(1); tests/interop/lab
# SPDX-License-Identifier: MIT
# SRP_LAB: the name of a running guest, which is left running
source "$(dirname "$0")/lab/lib.sh"
lab_needs
TARGET=$BUILD/storage/verbena-srp-target
[ -x "$TARGET" ] || { skip srp_linux "verbena-srp-target is not built"; exit 0; }
lab_boots vbsrp "${SRP_LAB:-}"
source "$(dirname "$0")/lab/nvme.sh" # there, killed, ended_well, works_on, came_through
there 'modprobe ib_srp reconnect_delay=1 fast_io_fail_tmo=30 ch_count=2; modprobe sd_mod; command -v sg_persist' >/dev/null ||
	{ skip srp_linux "the guest has no sg3-utils, or its kernel no ib_srp"; exit 0; }
GUID=0002c90300001234
guid="id_ext=$GUID,ioc_guid=$GUID"

serve() {
	rm -f "$work/target.out"
	"${on_here[@]}" "${run[@]}" "$TARGET" --listen :: --guid $GUID --export "$work/a.img" --export memory:64M --control "$work/control" \
		>"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 grep -q "$guid" "$work/target.out"
}
logs_in() { # DEST SRC. ib_srp refuses it for a while after a logout: "Already connected"
	there "for i in \$(seq 20); do
			echo '$guid,dest=$1,src=$2' >/sys/class/infiniband_srp/srp-rxe0-1/add_target && break
			dmesg | tail -2 | grep -q 'Already connected' || { dmesg | tail -5; exit 1; }
			sleep 0.5
		done
		for i in \$(seq 100); do
			set -- /sys/class/scsi_disk/*:0:0:0/device/block/* /sys/class/scsi_disk/*:0:0:1/device/block/*
			[ -b /dev/\${1##*/} -a -b /dev/\${2##*/} ] && ln -sf /dev/\${1##*/} /run/a && ln -sf /dev/\${2##*/} /run/b && exit 0
			sleep 0.1
		done; exit 1"
}
logs_out() { # the port goes a while after the disks
	there 'cd /sys/class/srp_remote_ports; for p in port-*; do echo 1 >$p/delete; done
		for i in $(seq 100); do ls | grep -q port || exit 0; sleep 0.1; done; exit 1'
}
refuses() { there "! echo 'id_ext=1,ioc_guid=1,dest=192.0.2.1:5555,src=192.0.2.2' >/sys/class/infiniband_srp/srp-rxe0-1/add_target && dmesg | tail -3 | grep -q 'LOGIN REJECTED, reason 0x00010003'"; }
checked() { # ARGS…: jobs of fio
	there "fio --allow_file_create=0 --ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --do_verify=1 --verify_fatal=1 ${*}"
}
reserves() {
	there 'set -e; sg_persist -n -o -G -S 11 /run/b; sg_persist -n -o -R -K 11 -T 3 /run/b; sg_persist -n -i -r /run/b | grep "Exclusive Access"
		sg_persist -n -i -s /run/b | grep "RDMA initiator port"; sg_persist -n -o -L -K 11 -T 3 /run/b; sg_persist -n -o -C -K 11 /run/b; sg_persist -n -i -k /run/b | grep -i "no registered"'
}
# What sg3-utils says of the disk; each of these commands checks its answer
describes() {
	there 'set -e; for p in sn di ei bl bdc lbpv; do sg_vpd -p $p /run/a; done; sg_readcap --16 /run/a | grep "lbpme=1"; sg_opcodes /run/a | grep -i "compare and write"
		sg_luns /run/a; sg_modes -a /run/a; sg_turs /run/a; sg_requests /run/a; sg_get_lba_status -l 0 /run/a; sg_sync /run/a; sg_verify -l 0 -c 64 /run/a
		sg_reset -d /run/b; sg_turs -n 2 /run/b || sg_turs /run/b; sg_start --stop /run/b; if sg_turs /run/b; then exit 1; fi; sg_start --start /run/b; sg_turs /run/b'
}
compares() {
	there 'set -e; head -c 512 /dev/zero >/run/z; head -c 512 /dev/urandom >/run/r; dd if=/run/z of=/run/b bs=512 count=1 oflag=direct status=none
		cat /run/z /run/r >/run/zr; sg_compare_and_write -l 0 -n 1 -i /run/zr -x 1024 /run/b; dd if=/run/b bs=512 count=1 iflag=direct status=none | cmp - /run/r
		if sg_compare_and_write -l 0 -n 1 -i /run/zr -x 1024 /run/b; then exit 1; fi; sg_write_same --16 -l 8 -n 64 -i /run/r -x 512 /run/b
		dd if=/run/b bs=512 skip=71 count=1 iflag=direct status=none | cmp - /run/r; sg_write_same --ndob --16 --unmap -l 8 -n 64 /run/b
		dd if=/run/b bs=512 skip=71 count=1 iflag=direct status=none | cmp - /run/z'
}

# MODE SELECT by the kernel; a unit that has grown
switches() {
	there 'set -e; c=$(echo /sys/block/$(basename $(readlink -f /run/a))/device/scsi_disk/*/cache_type); grep -x "write back" $c; echo "write through" >$c
		grep -x "write through" $c; sg_modes -p 8 /run/a | grep "08 12 00"; echo "write back" >$c; grep -x "write back" $c'
}
grows() {
	truncate -s 192M "$work/a.img" && "$TARGET" resize 0 --control "$work/control" && there 'set -e; d=/sys/block/$(basename $(readlink -f /run/a)); echo 1 >$d/device/rescan
		[ "$(cat $d/size)" = 393216 ]; dmesg | grep -i "capacity data has changed"'
}

truncate -s 128M "$work/a.img"
check "the target serves" serve
check "another target port is refused, with the reason" refuses
check "the kernel logs in by IPv4, with two channels" logs_in 192.0.2.1:5555 192.0.2.2
[ $failed = 0 ] || exit 1
check "sg3-utils read its pages, reset, stop and start it" describes
check "COMPARE AND WRITE, WRITE SAME" compares
check "the kernel switches the write cache by MODE SELECT" switches
check "a unit that has grown is reported, and seen after a rescan" grows
check "persistent reservations" reserves
check "what was written is read, all sizes; from memory, beyond what one request may have" checked \
	--name=a --filename=/run/a --rw=randrw --bsrange=512-256k --size=2M --name=b --filename=/run/b --rw=randwrite --bsrange=512k-2m --size=2M
check "a file system is made, filled, checked and trimmed" there 'set -e; mkfs.ext4 -q /run/a; mkdir -p /m; mount /run/a /m; cp -r /usr/bin/b* /m
	cd /usr/bin; find b* -type f | xargs md5sum >/run/sums; umount /m; fsck.ext4 -fn /run/a; mount /run/a /m; cd /m; md5sum --quiet -c /run/sums
	cd /; fstrim /m; umount /m'
check "discarded blocks read as zeros" there 'set -e; blkdiscard /run/a; cmp -n 4194304 /run/a /dev/zero'
check "… and the image has holes" test "$(stat -c %b "$work/a.img")" -lt 20000
works_on 'set -e; mkfs.ext4 -q /run/a; mount /run/a /m; touch /run/begun; for i in 1 2; do cp -r /usr/bin/[ab]* /m; sync; rm -rf /m/*; done; umount /m; fsck.ext4 -fn /run/a'
check "the target is killed in the middle of it" killed
check "another takes its place" serve
check "the kernel logs in again, and the file system goes on" came_through
check "the kernel logs out" logs_out
check "it logs in by IPv6" logs_in '[2001:db8:2::1]:5555' '[2001:db8:2::2]'
check "what was written is read by IPv6" there 'set -e; head -c 2M /dev/urandom >/run/r; dd if=/run/r of=/run/b bs=256k oflag=direct status=none
	dd if=/run/b bs=128k count=16 iflag=direct status=none | cmp - /run/r'
check "the target ends well with an initiator logged in" ended_well
[ -z "$borrowed" ] || logs_out >/dev/null 2>&1
exit $((failed > 0))

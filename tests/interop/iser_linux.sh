#!/bin/bash
# iser_linux.sh - the Linux kernel's iSER, on rxe in the emulated guest: its initiator with tgtd, its target with
# libiscsi's tools
# follows: RFC 7145; iscsiadm(8), tgtadm(8), LIO in configfs; tests/interop/lab
# SPDX-License-Identifier: MIT
# ISER_LAB: the name of a running guest, which is left running
source "$(dirname "$0")/lab/lib.sh"
lab_needs
lab_boots vbiser "${ISER_LAB:-}"
net_cleanup() { # the last step of all in iser.sh
	local status=$?
	[ -z "$target" ] || gone "$target" || kill -9 "$(program_of "$target")"
	(exit $status)
	lab_cleanup
}
source "$ROOT/tests/support/iser.sh"
if why=$(why_no_iser); then
	skip iser_linux "$why"
	exit 0
fi
export VERBENA_LAB_S=200
there() { "$LAB" guest "$*"; }
there 'command -v iscsid && modprobe -a ib_iser sd_mod target_core_file ib_isert' >/dev/null ||
	{ skip iser_linux "the guest has no open-iscsi, or its kernel no iSER"; exit 0; }
at_a=("${on_here[@]}") at_b=("${on_here[@]}") # the guest is the other host
AGAIN=1 # a guest whose emulated processors get no time hangs, even when the kernel talks to itself

# --- the guest's initiator, tgtd ---
MB=32
NAME=iqn.2026-01.test:guest
# The disk keeps its content, so that another target can replace a killed one
serves() {
	[ -z "$target" ] || kills
	free_port
	timeout -k 30 300 "${at_b[@]}" "${run[@]}" tgtd -f -C "$control" --iscsi "portal=127.0.0.1:$port" >"$work/target.out" 2>&1 &
	target=$!
	wait_for 20 answers && adm --op new --mode target --tid 1 -T $IQN && adm --op bind --mode target --tid 1 -Q $NAME &&
		adm --op new --mode logicalunit --tid 1 --lun 1 -b "$work/disk" && let_in && return 0
	tail "$work/target.out"
	return 1
}
kills() {
	kill -9 "$(program_of "$target")" 2>/dev/null
	wait "$target"
	target=
}
daemon() {
	there "mkdir -p /run/lock/iscsi; pgrep -x iscsid || { echo InitiatorName=$NAME >/etc/iscsi/initiatorname.iscsi; iscsid </dev/null >/run/iscsid.out 2>&1; }
		for i in \$(seq 100); do iscsiadm -m session 2>&1 | grep -q 'No active' && exit 0; sleep 0.2; done; cat /run/iscsid.out; exit 1"
}
# tgtd pings every initiator every five seconds. ib_iser has no receive for that during its login, so a slow login
# starts again
finds() { # PORTAL
	there "for i in 1 2 3 4 5 6 7 8; do iscsiadm -m discovery -t st -p $1 -I iser | tee /dev/stderr | grep -q $IQN && exit 0; sleep 1; done; exit 1"
}
logs_in() { # PORTAL
	there "{ iscsiadm -m node -u; iscsiadm -m node -o delete; } 2>/dev/null; set -e; iscsiadm -m node -o new -T $IQN -p '$1' -I iser; iscsiadm -m node -T $IQN -l
		iscsiadm -m session | grep '^iser:'
		for i in \$(seq 100); do d=\$(ls /sys/class/iscsi_session/*/device/target*/*/block) && [ -b /dev/\$d ] && ln -sf /dev/\$d /run/sd && exit 0; sleep 0.2; done; exit 1"
}
logs_out() { there "iscsiadm -m node -T $IQN -u; ! ls /sys/class/iscsi_session/*"; }
writes() {
	there "head -c $((MB / 2))M /dev/urandom >/tmp/image; dd if=/tmp/image of=/run/sd bs=1M oflag=direct status=none" &&
		[ "$(there "md5sum </tmp/image")" = "$(head -c $((MB / 2))M "$work/disk" | md5sum)" ]
}
reads() { # the whole disk equals the image on this side
	[ "$(there "dd if=/run/sd bs=512k iflag=direct status=none | md5sum")" = "$(md5sum <"$work/disk")" ]
}
files="cp -r /usr/bin/[a-d]* /m; sync" # several thousand requests
has_files() {
	there "umount /m 2>/dev/null; set -e; mkfs.ext4 -q /run/sd; mkdir -p /m; mount /run/sd /m; $files; umount /m; fsck.ext4 -fn /run/sd; mount /run/sd /m
		cd /usr/bin; find [a-d]* -type f | xargs md5sum >/run/sums; cd /m; md5sum --quiet -c /run/sums; cd /; umount /m"
}
verifies() {
	there "fio --name=v --filename=/run/sd --allow_file_create=0 --ioengine=libaio --direct=1 --iodepth=16 --rw=randrw --bsrange=512-256k \
		--size=8M --verify=crc32c --do_verify=1 --verify_fatal=1"
}
# iscsid gives up if the target exists before its disk: wait for both
goes_on() {
	local through status
	there "umount /m 2>/dev/null; set -e; mkfs.ext4 -q /run/sd; mount /run/sd /m; for i in 1 2 3; do rm -rf /m/*; $files; touch /run/round\$i; done; umount /m; fsck.ext4 -fn /run/sd" \
		>"$work/through" 2>&1 &
	through=$!
	there 'for i in $(seq 300); do [ -e /run/round1 ] && break; sleep 0.1; done; rm -f /run/round*; pkill -STOP -x iscsid'
	kills
	serves
	status=$?
	there 'pkill -CONT -x iscsid'
	wait $through && [ $status = 0 ] && return 0
	cat "$work/through"
	return 1
}

truncate -s ${MB}M "$work/disk"
check "tgtd listens for iSER" serves
check "the guest has an initiator" daemon
[ $failed = 0 ] || exit 1
for where in 192.0.2.1 '[2001:db8:2::1]'; do
	check "ib_iser finds the target at $where" finds "$where:3260"
	check "ib_iser logs in at $where" logs_in "$where:3260"
	[ $failed = 0 ] || exit 1
	before=$(came)
	check "what ib_iser writes is on the disk, $where" writes
	check "what ib_iser reads is what lies there, $where" reads
	check "the data came by the cable, $where" test $(($(came) - before)) -gt $((MB << 19))
	if [ "$where" = 192.0.2.1 ]; then
		check "a file system is made, filled and checked" has_files
		check "requests of all sizes, many at once, are verified" verifies
		check "the target is killed, another takes its place, the file system goes on" goes_on
	fi
	check "ib_iser logs out of $where" logs_out
done
check "the target goes when it is told to" target_ends
target=

# --- libiscsi's tools, the guest's target ---
MB=16
# libiscsi 1.19 sends immediate data without announcing it in the iSER header
lio() {
	there "set -e; mount -t configfs c /sys/kernel/config 2>/dev/null || :
		cd /sys/kernel/config/target; mkdir -p core/fileio_0/disk iscsi; cd core/fileio_0/disk
		rm -f /run/lio; truncate -s ${MB}M /run/lio; echo fd_dev_name=/run/lio,fd_dev_size=$((MB << 20)) >control; echo 1 >enable
		mkdir -p ../../../iscsi/$IQN/tpgt_1/lun/lun_1; cd ../../../iscsi/$IQN/tpgt_1; ln -s ../../../core/fileio_0/disk lun/lun_1/disk
		echo 0 >attrib/authentication; echo 1 >attrib/generate_node_acls; echo 0 >attrib/demo_mode_write_protect; echo No >param/ImmediateData
		for n in 192.0.2.2 '[2001:db8:2::2]'; do mkdir np/\$n:3260; echo 1 >np/\$n:3260/iser; done; echo 1 >enable"
}
knows() { on_client iscsi-inq "$(url "$1")" | tee /dev/stderr | grep -q "Vendor:LIO"; } # ADDRESS
writes_there() {
	head -c ${MB}M /dev/urandom >"$work/disk"
	on_client qemu-img convert -n -W -m 8 -f raw --target-image-opts "$work/disk" "$(node)" && [ "$(there 'md5sum </run/lio')" = "$(md5sum <"$work/disk")" ]
}
killed_and_another() {
	local c
	rm -f "$work/perf.out"
	on_client iscsi-perf -b 512 -m 32 "$(url)" >"$work/perf.out" 2>&1 &
	c=$!
	wait_for 30 grep -qs iops "$work/perf.out" && kill -9 "$(program_of $c)"
	wait $c
	knows "$where"
}
sound() { ! "$LAB" broke; }
where=192.0.2.2
AGAIN= check "the guest has a target" lio
check "iscsi-inq asks isert what it is" knows "$where"
check "iscsi-inq asks isert what it is, IPv6" knows "[2001:db8:2::2]"
check "iscsi-readcapacity16 asks isert for its size" tells_size
check "an image of $MB MB is written to isert, and lies there" writes_there
check "it is read back" reads_back "$work/back"
check "iscsi-perf reads from isert, small, many at once" many 8 64
check "iscsi-perf reads from isert, large, many at once" many 512 32
check "isert goes on when an initiator is killed" killed_and_another
AGAIN= check "the guest's kernel has nothing to report" sound
finish

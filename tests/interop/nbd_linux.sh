#!/bin/bash
# nbd_linux.sh - the Linux kernel's NBD client, in the emulated guest, with nbdkit and our plugin: used, target killed,
# attached again
# follows: nbd-client(8), man/nbdkit-verbena-plugin.1; tests/interop/lab
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/nvme.sh"
source "$ROOT/tests/system/storage/plugged.sh"
lab_needs nbdkit
pluggable nbd_linux || exit 0
nbd_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	[ -z "$nbd" ] || kill -9 "$nbd" 2>/dev/null
	(exit $status)
	lab_cleanup
}
lab_boots vbnbd
trap nbd_cleanup EXIT
there 'command -v nbd-client && modprobe nbd' >/dev/null || { skip nbd_linux "the guest has no nbd-client, or its kernel no nbd"; exit 0; }

serve() { # TRANSPORT: of target and plugin, both on this host
	serve_by "${on_here[@]}" "${run[@]}" "$TARGET" --listen 127.0.0.1 --transport "$1" --nqn $NQN --export "$work/a.img"
}
plugged() { listens 10809; }
plug() { plug_by "${on_here[@]}" "${run[@]}" nbdkit -f -i 192.0.2.1 -p 10809 "$PLUGIN" url="$(head -1 "$work/target.out")"; } # on the guest's cable
unplugged() {
	kill "$nbd"
	wait_for 30 gone "$nbd" || kill -9 "$nbd"
	wait "$nbd"
	local status=$?
	nbd=
	[ $status = 0 ] || cat "$work/nbdkit.out"
	return $status
}
attaches() { # ARGS…
	there "nbd-client 192.0.2.1 10809 /dev/nbd0 $* && for i in \$(seq 60); do [ \$(blockdev --getsize64 /dev/nbd0) = $((256 << 20)) ] && exit 0; sleep 1; done
		blockdev --getsize64 /dev/nbd0; exit 1"
}
detaches() { there 'nbd-client -d /dev/nbd0; for i in $(seq 60); do nbd-client -c /dev/nbd0 || exit 0; sleep 1; done; exit 1'; }
compares='mkdir -p /m && mount /dev/nbd0 /m && cd /m/bin && md5sum --quiet -c /run/sums && cd / && umount /m'

truncate -s 256M "$work/a.img"
check "the target serves by RDMA" serve rdma
check "nbdkit takes it" plug
check "nbd-client attaches it" attaches
[ $failed = 0 ] || exit 1
check "the device is as large, and takes what a disk takes" there 'set -e; grep -q 1 /sys/block/nbd0/queue/fua; [ $(cat /sys/block/nbd0/queue/discard_max_bytes) -gt 0 ]'
check "a file system is made, filled, synced, checked and trimmed" there "set -e; mkfs.ext4 -q /dev/nbd0; mkdir -p /m; mount /dev/nbd0 /m; cp -r /usr/bin /m
	cd /usr/bin; find . -type f | xargs md5sum >/run/sums; cd /; sync; umount /m; fsck.ext4 -fn /dev/nbd0; mount /dev/nbd0 /m; fstrim /m; umount /m"
check "it is detached" detaches
check "what was written is on the disk, whose file system is whole" fsck.ext4 -fn "$work/a.img"
check "nbd-client attaches it again, by four connections" attaches -C 4
check "the files are the same" there "$compares"
check "what is written is verified" verifies /dev/nbd0 --rw=randrw --bsrange=512-256k --size=24M --offset=200M
works_on 'set -e; mount /dev/nbd0 /m; for i in 1 2 3 4; do cp -r /usr/bin /m/$i; sync; rm -r /m/$i; done; cp -r /usr/bin /m/last; umount /m; fsck.ext4 -fn /dev/nbd0'
check "the target is killed in the middle of it" killed
check "another takes its place" serve_again rdma
check "nothing is noticed of that" came_through
check "the files are still the same" there "$compares; mount /dev/nbd0 /m; diff -r --no-dereference /usr/bin /m/last; e=\$?; umount /m; exit \$e"
check "it is detached" detaches
check "nbdkit ends well" unplugged
check "the target ends well" ended_well
check "what was written is on the disk, whose file system is whole" fsck.ext4 -fn "$work/a.img"
check "the same by TCP: the target serves" serve tcp
check "… nbdkit takes it" plug
check "… nbd-client attaches it" attaches -C 2
check "… the files are the same" there "$compares"
check "… what is written is verified" verifies /dev/nbd0 --rw=randrw --bsrange=4k-1M --size=24M --offset=200M
check "… it is detached" detaches
check "… nbdkit ends well" unplugged
check "… the target ends well" ended_well
finish

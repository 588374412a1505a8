#!/bin/bash
# boot.sh - QEMU boots from a disk that verbena-target serves by RDMA, through the nbdkit plugin, and writes to it
# follows: qemu(1), extlinux(1), man/nbdkit-verbena-plugin.1; tests/interop/lab for kernel and first steps
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/plugged.sh"
need qemu-system-x86_64 nbdkit mmdebstrap mke2fs debugfs extlinux
pluggable boot || exit 0
[ "$(id -u)" = 0 ] || { skip boot "only root mounts an image"; exit 0; }
LAB=${VERBENA_LAB:-/var/tmp/verbena-lab}
NQN=nqn.2026-01.test:boot
free_port
TAKES=200 # limit in seconds; it takes ten

# --- the disk: a boot loader, Debian's kernel, the lab's initial steps, and one script ---
guest_init() {
	cat <<-'INIT'
		#!/bin/busybox sh
		# process 1: reads, writes, and reports its progress on the console
		export PATH=/bin
		busybox mount -t proc p /proc; busybox mount -t devtmpfs d /dev
		say() { echo "GUEST $*" >/dev/ttyS0; }
		say booted from $(busybox awk '$2 == "/" { print $1 }' /proc/mounts)
		[ "$(busybox md5sum </given | busybox cut -d' ' -f1)" = "$(busybox cat /given.md5)" ] && say read || say read something else
		n=$(busybox cat /count); n=$((n + 1))
		i=0
		say writes
		while [ $i -lt 12 ]; do
		    busybox dd if=/dev/urandom of=/written.$n.$i bs=64k count=16 conv=fsync 2>/dev/null || say cannot write
		    busybox md5sum </written.$n.$i | busybox cut -d' ' -f1 >/written.$n.$i.md5
		    i=$((i + 1))
		    say wrote $i
		done
		echo $n >/count
		busybox sync
		busybox mount -o remount,ro / && say done
		busybox poweroff -f
	INIT
}
# extlinux supports ext4 with this block size
make_disk() {
	"$HERE/../../interop/lab/build" || return 1
	mkdir -p "$work"/root/{bin,boot,dev,proc} "$work/mnt"
	(cd "$work" && zcat "$LAB/initrd.gz" | cpio -id --quiet bin/busybox && mv bin/busybox root/bin/) || return 1
	cp "$LAB/vmlinuz" "$LAB/initrd.gz" "$work/root/boot/"
	printf 'SERIAL 0 115200\nDEFAULT linux\nPROMPT 0\nLABEL linux\n KERNEL vmlinuz\n INITRD initrd.gz\n APPEND console=ttyS0 quiet panic=-1\n' >"$work/root/boot/extlinux.conf"
	guest_init >"$work/root/guest-init"
	chmod 755 "$work/root/guest-init"
	head -c 5000000 /dev/urandom >"$work/root/given"
	md5sum <"$work/root/given" | cut -d' ' -f1 >"$work/root/given.md5"
	echo 0 >"$work/root/count"
	truncate -s 96M "$work/disk"
	mke2fs -q -t ext4 -b 4096 -O ^64bit,^metadata_csum -d "$work/root" "$work/disk" || return 1
	# the file system begins at the start of the disk: its boot block is the disk's
	mount -o loop "$work/disk" "$work/mnt" || return 1
	extlinux --install "$work/mnt/boot"
	local status=$?
	umount "$work/mnt"
	return $status
}

# --- target and plugin ---
qemu=
boot_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	for p in $qemu $nbd $target; do kill -9 "$(program_of "$p")" "$p" 2>/dev/null; done
	umount "$work/mnt" 2>/dev/null
	(exit $status)
	cleanup
}
trap boot_cleanup EXIT
trap 'exit 130' INT TERM

serve() { serve_by "${run[@]}" "$TARGET" --export "$work/disk" --transport rdma --port "$port" --nqn $NQN; }
plugged() { [ -S "$work/nbd" ]; }
plug() {
	rm -f "$work/nbd"
	plug_by "${run[@]}" nbdkit -f -U "$work/nbd" "$PLUGIN" "url=nvme+rdma://127.0.0.1:$port/$NQN"
}

# --- the guest ---
boot() {
	rm -f "$work/console"
	timeout -k 2 $((2 * TAKES)) qemu-system-x86_64 -accel tcg -cpu max -m 512 -display none -no-reboot -nic none -serial "file:$work/console" \
		-drive "file=nbd:unix:$work/nbd,format=raw,if=virtio" </dev/null >"$work/qemu.out" 2>&1 &
	qemu=$!
}
says() { grep -qs "^GUEST $1" "$work/console"; }
heard() { # TEXT: appears in time
	wait_for $TAKES says_or_gone "$1" && says "$1" && return 0
	tail -n 20 "$work/console" "$work/qemu.out"
	return 1
}
says_or_gone() { says "$1" || gone "$qemu"; }
boots() {
	boot
	heard "booted from /dev/vda" && heard "read$(printf '\r')$"
}
goes_on_to_the_end() { heard "done" && ends "$qemu" && ! grep "cannot\|something else" "$work/console"; }
kills_the_target() {
	heard "wrote 1" || return 1
	kill -9 "$(program_of "$target")"
	wait "$target"
	! says "wrote 12" && serve_again
}
file() { debugfs -R "cat /$1" "$work/disk" 2>/dev/null; }
has_written() { # HOW-OFTEN
	local i
	[ "$(file count)" = "$1" ] || { file count; return 1; }
	for i in $(seq 0 11); do
		[ "$(file "written.$1.$i" | md5sum | cut -d' ' -f1)" = "$(file "written.$1.$i.md5")" ] || { echo "written.$1.$i is another"; return 1; }
	done
	e2fsck -fn "$work/disk"
}

check "a disk with a boot loader and a system is made" make_disk
[ $failed = 0 ] || exit 1
check "the target serves it by RDMA" serve
check "nbdkit takes it" plug
check "the guest boots from it, and reads what is there" boots
[ $failed = 0 ] || exit 1
check "it writes and goes" goes_on_to_the_end
check "what it has written is on the disk, whose file system is whole" has_written 1
check "it boots again" boots
check "the target is killed while it writes, and another takes its place" kills_the_target
check "the guest goes on as if nothing had been" goes_on_to_the_end
kill "$nbd" 2>/dev/null
check "nbdkit ends" ends "$nbd"
kill "$target" 2>/dev/null
check "the target ends" ends "$target"
check "what it wrote the second time is there, too" has_written 2
finish

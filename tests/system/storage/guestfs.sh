#!/bin/bash
# guestfs.sh - libguestfs on a disk that verbena-target serves by RDMA, through the nbdkit plugin: partitions, file systems, files
# follows: guestfish(1), supermin(1), man/nbdkit-verbena-plugin.1; tests/interop/lab for the kernel
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/plugged.sh"
need guestfish qemu-system-x86_64 nbdkit mmdebstrap
pluggable guestfs || exit 0
DISK=$BUILD/storage/verbena-disk
[ "$(id -u)" = 0 ] || { skip guestfs "only root makes the kernel's image"; exit 0; }
LAB=${VERBENA_LAB:-/var/tmp/verbena-lab}
NQN=nqn.2026-01.test:guestfs
free_port
TAKES=300 # limit in seconds; it takes ten, or thirty the first time, when there is no appliance yet

# --- the appliance: from this machine's packages, with the lab's kernel; kept beside it ---
appliance() {
	local modules
	"$HERE/../../interop/lab/build" || return 1
	modules=("$LAB"/modules/*)
	[ -d "${modules[0]}" ] || { echo "no modules in $LAB"; return 1; }
	mkdir -p "$LAB/appliance"
	export SUPERMIN_KERNEL=$LAB/vmlinuz SUPERMIN_MODULES=${modules[0]} LIBGUESTFS_BACKEND=direct \
		LIBGUESTFS_BACKEND_SETTINGS=force_tcg LIBGUESTFS_CACHEDIR=$LAB/appliance
}

# --- target and plugin ---
guestfs_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	for p in $nbd $target; do kill -9 "$(program_of "$p")" "$p" 2>/dev/null; done
	(exit $status)
	cleanup
}
trap guestfs_cleanup EXIT
trap 'exit 130' INT TERM

serve() { serve_by "${run[@]}" "$TARGET" --export "$work/disk" --transport rdma --port "$port" --nqn $NQN; }
plugged() { [ -S "$work/nbd" ]; }
plug() { plug_by "${run[@]}" nbdkit -f -U "$work/nbd" "$PLUGIN" "url=nvme+rdma://127.0.0.1:$port/$NQN"; }

# fish ARGS…: commands from standard input, on the disk
fish() { timeout -k 5 $TAKES guestfish --format=raw -a "nbd://?socket=$work/nbd" "$@"; }

makes() {
	fish <<-EOF
		run
		part-init /dev/sda gpt
		part-add /dev/sda primary 2048 200703
		part-add /dev/sda primary 200704 -2048
		mkfs ext4 /dev/sda1 label:first
		mkfs vfat /dev/sda2
		mount /dev/sda1 /
		upload $work/given /given
		write /short "a short one"
		tar-in $work/tree.tar /
		umount /
		mount /dev/sda2 /
		upload $work/given /given
		write /short "a short one"
	EOF
}
looks() { # its data is there for another guest
	rm -f "$work"/{first,second}.*
	fish --ro <<-EOF
		run
		vfs-type /dev/sda1 | cat >$work/first.list
		vfs-type /dev/sda2 | cat >>$work/first.list
		mount-ro /dev/sda1 /
		download /given $work/first.given
		download /short $work/first.short
		tar-out /tree $work/first.tar
		umount /
		mount-ro /dev/sda2 /
		download /given $work/second.given
		download /short $work/second.short
	EOF
	[ $? = 0 ] || return 1
	printf 'ext4\nvfat\n' | cmp - "$work/first.list" || return 1
	for f in first second; do
		cmp "$work/given" "$work/$f.given" && [ "$(cat "$work/$f.short")" = "a short one" ] || return 1
	done
	mkdir -p "$work/out" && tar -C "$work/out" -xf "$work/first.tar" && diff -r --no-dereference "$work/tree" "$work/out"
}
whole() { # partition 1, on the target's own host
	dd if="$work/disk" of="$work/part" bs=1M skip=1 count=97 status=none && e2fsck -fn "$work/part"
}
writes_more() {
	fish <<-EOF
		run
		mount /dev/sda1 /
		fill 65 30000000 /filled
		sync
		!touch $work/filled
		fill 66 20000000 /filled2
		sync
		checksum md5 /filled | cat >$work/sums
		checksum md5 /filled2 | cat >>$work/sums
		rm /filled
		umount /
	EOF
}
kills_the_target() {
	wait_for $TAKES test -e "$work/filled" || return 1
	kill -9 "$(program_of "$target")"
	wait "$target"
	[ ! -e "$work/sums" ] && serve_again
}
in_between() {
	writes_more >"$work/fish.out" 2>&1 &
	local fishes=$! status=0
	kills_the_target || status=1
	wait $fishes || status=1
	[ $status = 0 ] || cat "$work/fish.out"
	return $status
}
sums() { # checksums of the written files, one for each BYTE:LENGTH
	for f; do head -c "${f#*:}" /dev/zero | tr '\0' "${f%:*}" | md5sum | cut -d' ' -f1; done
}

truncate -s 200M "$work/disk"
head -c 5000001 /dev/urandom >"$work/given"
mkdir -p "$work/tree" && cp "$HERE"/*.sh "$work/tree/" && ln -s nowhere "$work/tree/link" && tar -C "$work" -cf "$work/tree.tar" tree
check "there is a kernel for the appliance" appliance
[ $failed = 0 ] || exit 1
check "the target serves by RDMA" serve
check "nbdkit takes it" plug
check "two partitions, two file systems, files" makes
[ $failed = 0 ] || exit 1
check "they are there for another, the same" looks
check "… and the first file system is whole" whole
check "it goes on writing, the target killed meanwhile" in_between
check "… what it has read back is what it had written" cmp <(sums A:30000000 B:20000000) "$work/sums"
check "… the first file system is whole" whole
check "… what was there before is still there" looks
kill "$nbd" 2>/dev/null
check "nbdkit ends" ends "$nbd"
kill "$target" 2>/dev/null
check "the target ends" ends "$target"
finish

#!/bin/bash
# media.sh - disks fail under verbena-target: hosts get the right errors, losses are reported, other disks and hosts are
# not affected
# follows: nbdkit-error-filter(1), nbdfuse(1), losetup(8)
# see: tests/system/storage/client_media.c
# SPDX-License-Identifier: MIT
#
# The disk is a file that nbdkit serves with errors on demand. nbdfuse makes it a file, and losetup a block device.
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
TARGET=$BUILD/storage/verbena-target
PROGRAM=$BUILD/tests/system/storage/storage_client_media
[ -x "$TARGET" ] && [ -x "$PROGRAM" ] || { skip media "verbena-target is not built"; exit 0; }
need nbdkit nbdfuse losetup
[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { skip media "only root mounts what nbdfuse makes"; exit 0; }
MB=8
NQN=nqn.2026-01.test:media
target= disk= fuse= loop= small=

disk_off() {
	[ -z "$loop" ] || losetup -d "$loop"
	[ -z "$fuse" ] || { umount "$work/disk" 2>/dev/null || umount -l "$work/disk"; die "$fuse"; }
	[ -z "$disk" ] || die "$disk"
	[ -z "$small" ] || umount -l "$work/small"
	disk= fuse= loop= small=
}
media_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	[ -z "$target" ] || die "$(program_of "$target")" "$target"
	disk_off
	(exit $status)
	cleanup
}
trap media_cleanup EXIT
trap 'exit 130' INT TERM

has_come() { [ "$(stat -c %s "$work/disk")" = $((MB << 20)) ]; }
# disk_on file|block RATE: $served fails while $work/bad exists
disk_on() {
	rm -f "$work"/{nbd,bad,image}
	truncate -s ${MB}M "$work/image"
	: >"$work/disk"
	nbdkit -f -U "$work/nbd" --filter=error file "$work/image" error-rate="$2" error-file="$work/bad" >"$work/nbdkit.out" 2>&1 &
	disk=$!
	wait_for 20 test -S "$work/nbd" || return 1
	nbdfuse "$work/disk" "nbd+unix:///?socket=$work/nbd" >"$work/nbdfuse.out" 2>&1 &
	fuse=$!
	wait_for 20 has_come || return 1
	served=$work/disk
	[ "$1" = file ] || { loop=$(losetup -f --show --direct-io=on "$work/disk") && served=$loop; }
}
# small_disk: $served has room for half of its reported size
small_disk() {
	mkdir -p "$work/small"
	mount -t tmpfs -o size=$((MB / 2))M tmpfs "$work/small" && small=yes || return 1
	truncate -s ${MB}M "$work/small/image"
	loop=$(losetup -f --show "$work/small/image") && served=$loop
}

target_speaks() { grep -qs "^nvme" "$work/target.out" || gone "$target"; }
# serve TRANSPORT ARGS…: serves the disk, and one in memory. Files: blocks of the size for O_DIRECT; otherwise reads use
# the page cache
serve() {
	rm -f "$work/target.out"
	"${run[@]}" "$TARGET" --export "$served" --export memory:${MB}M --transport "$1" --nqn $NQN --port 0 "${@:2}" >"$work/target.out" \
		2>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs "^nvme" "$work/target.out"
}
ends() {
	local status
	kill "$(program_of "$target")"
	wait "$target"
	status=$?
	target=
	[ $status = 0 ] && ! grep Sanitizer "$work/target.err"
}
# medium CASE TRANSPORT ARGS…
medium() {
	local url status=0
	serve "${@:2}" || { cat "$work/target.err"; return 1; }
	url=$(head -1 "$work/target.out")
	timeout -k 2 $((120 * SLOW)) "${run[@]}" "$PROGRAM" "$1" "$url" "$url?nsid=2" "$work/bad" || status=1
	ends || { cat "$work/target.err"; status=1; }
	return $status
}
kept_out() { ! own info "$url"; }
# hangs TRANSPORT: a host that vanishes while the medium does not answer must wait to reconnect; others need not
hangs() {
	local url status=0
	own() { timeout -k 2 $((60 * SLOW)) "${run[@]}" "$BUILD/storage/verbena-disk" --reconnect=0 "$@"; }
	serve "$1" --block-size 4096 || { cat "$work/target.err"; return 1; }
	url=$(head -1 "$work/target.out")
	kill -STOP "$disk"
	timeout -s KILL 10 "${run[@]}" "$BUILD/storage/verbena-disk" read "$url" 1m 4k
	# the target notices soon that its host has gone; then several times
	wait_for 20 kept_out && ! own info "$url" || { echo "it was let in"; status=1; }
	own --host-nqn=nqn.2026-01.test:other info "$url" && own --host-nqn=nqn.2026-01.test:other read "$url?nsid=2" 0 4k >/dev/null || { echo "another host is kept out, too"; status=1; }
	[ "$(grep -c 'a medium does not finish' "$work/target.err")" = 1 ] || { echo "it is not said once"; status=1; }
	kill -CONT "$disk"
	wait_for 20 own info "$url" && own read "$url" 1m 4k >/dev/null || { echo "it is not let in again"; status=1; }
	ends || { cat "$work/target.err"; status=1; }
	return $status
}
# on KIND RATE COMMAND…: runs COMMAND with such a disk
on() {
	local status=0
	{ [ "$1" = small ] && small_disk || disk_on "$1" "$2"; } || { cat "$work"/nbd*.out; disk_off; return 1; }
	"${@:3}" || status=1
	disk_off
	return $status
}

why=$(on file 100% true) || { skip media "nbdfuse cannot mount here"; exit 0; }
for t in tcp rdma; do
	check "a file, by $t: errors are told, have no effect, and disturb nobody" on file 100% medium direct $t --block-size 4096
done
for t in tcp rdma; do
	check "a file that hangs, by $t: its host comes back when it goes on, others before" on file 0 hangs $t
done
check "a file, without io_uring: errors are told, have no effect, and disturb nobody" on file 100% medium direct tcp --block-size 4096 --threads
check "a file that fails now and then: requests are tried again, and nothing is lost" on file 3% medium sometimes tcp --block-size 4096
if [ -e /dev/loop-control ] && losetup -f >/dev/null 2>&1; then
	for t in tcp rdma; do
		check "a block device, by $t: errors are told, have no effect, and disturb nobody" on block 100% medium direct $t
		check "a block device behind the page cache, by $t: each host is told of what is lost" on block 100% medium cached $t --buffered
	done
	check "a block device that fails now and then: requests are tried again, and nothing is lost" on block 3% medium sometimes rdma
	check "a block device that is full: that is said, and what had room is there" on small 0 medium full tcp
else
	skip "a block device" "there is no loop device"
fi
finish

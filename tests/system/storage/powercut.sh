#!/bin/bash
# powercut.sh - verbena-target is killed at random, and its disk loses unflushed data, under a client that writes and
# reconnects
# follows: nbdkit-cache-filter(1), nbdfuse(1), losetup(8)
# see: tests/system/storage/powercut.c
# SPDX-License-Identifier: MIT
# usage: powercut.sh [ROUNDS [SEED]]   MEDIUM=rbd:POOL: kills, with an image of a Ceph cluster
#
# A kill loses the memory of a process, and a power cut also the cache of a disk. The disk here is a file whose writes
# nbdkit's cache filter holds in memory until a flush; nbdfuse makes it the file that the target serves. A cut kills the
# target, then nbdkit.
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/medium.sh"
ROUNDS=${1:-3}
SEED=${2:-$RANDOM}
TARGET=$BUILD/storage/verbena-target
PROGRAM=$BUILD/tests/system/storage/storage_powercut
[ -x "$TARGET" ] && [ -x "$PROGRAM" ] || { skip powercut "verbena-target is not built"; exit 0; }
sanitized && [ $# = 0 ] && ROUNDS=2
MB=8
NQN=nqn.2026-01.test:powercut
target= disk= fuse= loop= transport= backend= kind=
echo "# seed $SEED, $ROUNDS rounds each"

# --- the disk: the target serves $served ---
disk_off() {
	[ -z "$disk" ] || die "$disk"
	[ -z "$loop" ] || losetup -d "$loop" 2>/dev/null
	[ -z "$fuse" ] || { umount "$work/disk" 2>/dev/null || umount -l "$work/disk" 2>/dev/null; die "$fuse"; }
	disk= fuse= loop=
}
has_come() { [ "$(stat -c %s "$work/disk")" = $((MB << 20)) ]; }
disk_on() {
	served=$medium
	[ "$kind" = process ] && return
	rm -f "$work/nbd"
	nbdkit -f -U "$work/nbd" --filter=cache file "$work/image" cache=writeback >"$work/nbdkit.out" 2>&1 &
	disk=$!
	wait_for 20 test -S "$work/nbd" || return 1
	nbdfuse "$work/disk" "nbd+unix:///?socket=$work/nbd" >"$work/nbdfuse.out" 2>&1 &
	fuse=$!
	wait_for 20 has_come || return 1
	served=$work/disk
	[ "$backend" = block ] || return 0
	loop=$(losetup -f --show "$work/disk") && served=$loop
}

# --- the target ---
serve() {
	local more=
	case $backend in
	mapped) more=--mapped ;;
	threads) more=--threads ;; # a file, without io_uring
	esac
	rm -f "$work/target.out"
	"${run[@]}" "$TARGET" --export "$served" "${medium_args[@]}" $more --transport "$transport" --nqn $NQN --port "$port" \
		>"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs "^nvme" "$work/target.out"
}
target_speaks() { grep -qs "^nvme" "$work/target.out" || gone "$target"; }
# The file is locked until the kernel has finished the requests of a killed target
target_on() {
	local _
	for _ in $(seq 300); do
		serve && return 0
		die "$target"
		sleep 0.1
	done
	cat "$work/target.err"
	return 1
}
target_off() {
	[ -z "$target" ] || die "$(program_of "$target")" "$target"
	target=
}
cut() {
	target_off
	disk_off
	disk_on && target_on
}
powercut_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	target_off
	disk_off
	(exit $status)
	cleanup
}
trap powercut_cleanup EXIT
trap 'exit 130' INT TERM

# comes_through KIND TRANSPORT BACKEND ROUNDS
comes_through() {
	local program line status
	kind=$1 transport=$2 backend=$3
	unset VERBENA_DEVICES
	[ $2 != iwarp ] || { transport=rdma; export VERBENA_DEVICES=iwarp:lo; }
	rm -f "$work/image" "$work/to" "$work/from"
	medium "$work/image" ${MB}M || return 1
	: >"$work/disk"
	: >"$work/target.err"
	mkfifo "$work/to" "$work/from"
	free_port
	disk_on && target_on || return 1
	timeout -k 2 $((200 * SLOW + 10 * $4)) "${run[@]}" "$PROGRAM" "nvme+$transport://127.0.0.1:$port/$NQN" "$4" "$SEED" "$1" <"$work/to" >"$work/from" 2>"$work/program.err" &
	program=$!
	exec 8>"$work/to" 9<"$work/from"
	while read -r line <&9; do
		if [ "$line" = cut ]; then
			cut && echo on >&8 || { kill "$program"; break; }
		else
			echo "$line"
			echo "# $1, $2, $3: $line" >&5
		fi
	done
	exec 8>&- 9<&-
	wait $program
	status=$?
	target_off
	disk_off
	! grep -q Sanitizer "$work/target.err" || status=1
	[ $status = 0 ] || { echo "seed $SEED, ended with $status"; tail "$work/program.err" "$work/target.err"; }
	return $status
}
exec 5>&1

can_cut() {
	command -v nbdkit >/dev/null && command -v nbdfuse >/dev/null || { echo "nbdkit or libnbd-bin is not installed"; return 1; }
	[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { echo "only root mounts what nbdfuse makes"; return 1; }
	local status
	kind=power backend=file medium=$work/image
	truncate -s ${MB}M "$work/image"
	: >"$work/disk"
	disk_on
	status=$?
	disk_off
	[ $status = 0 ] || echo "nbdfuse cannot mount here"
	return $status
}

if on_rbd; then
	for t in tcp rdma iwarp; do
		check "killed, by $t, rbd: nothing is lost that was answered" comes_through process $t rbd "$ROUNDS"
	done
	finish
fi
for t in tcp rdma; do
	for b in file mapped; do
		check "killed, by $t, $b: nothing is lost that was answered" comes_through process $t $b "$ROUNDS"
	done
done
if ! why=$(can_cut); then
	skip "power cuts" "$why"
	finish
fi
for t in tcp rdma; do
	for b in file mapped; do
		check "power cut, by $t, $b: nothing is lost that was flushed" comes_through power $t $b "$ROUNDS"
	done
done
check "power cut, by iwarp, file: nothing is lost that was flushed" comes_through power iwarp file "$ROUNDS"
check "power cut, by tcp, file without io_uring: nothing is lost that was flushed" comes_through power tcp threads "$ROUNDS"
if [ -e /dev/loop-control ] && losetup -f >/dev/null 2>&1; then
	check "power cut, by tcp, block: nothing is lost that was flushed" comes_through power tcp block "$ROUNDS"
else
	skip "power cut, a block device" "there is no loop device"
fi
check "a loss is seen where nothing is flushed" comes_through control tcp file 3
finish

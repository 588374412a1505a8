#!/bin/bash
# nbd.sh - other programs on disks over NVMe over Fabrics: QEMU, libnbd, nbdkit's filters, fio; odd sizes, block devices
# follows: man/nbdkit-verbena-plugin.1, man/verbena-disk.1
# SPDX-License-Identifier: MIT
# nbd.sh TARGET DISK PLUGIN
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/medium.sh"
target=$(realpath "$1") disk=$(realpath "$2") plugin=$(realpath "$3")
for p in nbdkit nbdcopy nbdinfo qemu-img qemu-io; do
	command -v $p >/dev/null || { echo "skip programs that speak NBD: no $p"; exit 77; }
done
loops=()
nbd_cleanup() {
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT
	for p in ${pids[@]+"${pids[@]}"}; do kill -9 "$p"; wait "$p"; done 2>/dev/null
	for l in ${loops[@]+"${loops[@]}"}; do losetup -d "$l"; done
	cleanup
}
trap nbd_cleanup EXIT
# plug NAME URL ARGS…: the disk as $nbd
plug() {
	nbdkit -f -U "$work/$1.sock" "$plugin" url="$2" "${@:3}" >"$work/$1.nbdkit" 2>&1 &
	pids+=($!)
	nbd="nbd+unix:///?socket=$work/$1.sock"
	in_time test -S "$work/$1.sock"
}
size=20000001
head -c $size /dev/urandom >"$work/source"
same() { cmp -n $size "$work/source" "$1"; }
there_and_back() { # URI NBDCOPY-ARGS…
	rm -f "$work/back"
	nbdcopy "${@:2}" "$work/source" "$1" && nbdcopy "${@:2}" "$1" "$work/back" && same "$work/back"
}
run="nbdcopy '$work/source' \"\$uri\" && nbdcopy \"\$uri\" '$work/back' && cmp -n $size '$work/source' '$work/back'" # … of nbdkit

truncate -s $((50001 * 512 + 100)) "$work/odd" # the last block of 4096 bytes is partial, and so is the last one of 512
medium memory 64M
serve out 1 --export "$work/odd" --export "$medium" --port 0 --nqn nqn.2026-01.test:nbd --block-size 512
url=$(head -1 "$work/out")
plug odd "$url"
odd=$nbd
check "a file has as many blocks as are whole" sh -c "nbdinfo --size '$odd' | grep -qx $((50001 * 512))"
check "nbdcopy, one connection" there_and_back "$odd" --connections=1
check "nbdcopy, many connections and requests" there_and_back "$odd" --connections=4 --requests=64 --threads=4
images() {
	qemu-img create -q -f qcow2 "$work/a.qcow2" $((50001 * 512)) &&
		qemu-io -f qcow2 -c 'write -P 7 1M 10M' -c 'write -z 12M 5M' -c 'write -P 9 25600000 512' "$work/a.qcow2" >/dev/null &&
		qemu-img convert -n -f qcow2 -O raw "$work/a.qcow2" "$odd" && qemu-img compare -f qcow2 -F raw "$work/a.qcow2" "$odd" &&
		qemu-img convert -f raw -O qcow2 "$odd" "$work/b.qcow2" && qemu-img compare "$work/a.qcow2" "$work/b.qcow2"
}
check "qemu-img: an image is converted there and back, and compared" images
measures() { qemu-img bench -f raw -c 5000 -d 64 -s 4096 "$odd" && qemu-img bench -w -f raw -c 2000 -d 64 -s 4096 --flush-interval=100 "$odd"; }
check "qemu-img: it is measured" measures
for f in cow cache readahead blocksize cow+cache; do
	filters=() && for x in ${f//+/ }; do filters+=(--filter=$x); done
	check "nbdkit's filters: $f" nbdkit -U - "${filters[@]}" "$plugin" url="$url?nsid=2" --run "$run"
done
partitioned() {
	# an MBR whose first entry has 40960 sectors from number 2048 on
	printf '\0\0\0\0\x83\0\0\0\0\x08\0\0\0\xa0\0\0' | dd of="$work/table" bs=1 seek=446 conv=notrunc status=none
	printf '\x55\xaa' | dd of="$work/table" bs=1 seek=510 conv=notrunc status=none
	"$disk" --quiet copy "$work/table" "$url?nsid=2" &&
		nbdkit -U - --filter=partition "$plugin" url="$url?nsid=2" partition=1 --run "nbdinfo --size \"\$uri\" | grep -qx $((20 << 20)) && $run"
}
truncate -s 60M "$work/table"
check "nbdkit's filters: a partition" partitioned
if command -v fio >/dev/null && fio --enghelp 2>/dev/null | grep -q nbd; then
	verified() { cd "$work" && fio --ioengine=nbd --uri="$1" --verify=crc32c --verify_fatal=1 --iodepth=16 --randseed=4711 "${@:2}" >fio.out 2>&1 && ! grep -q 'err= *[1-9]' fio.out || { cat fio.out; return 1; }; }
	check "fio: what is written is verified, requests of any number of blocks" verified "$odd" --name=any --rw=randrw --bsrange=512-128k --blockalign=512 --size=20m --verify_backlog=64
	check "fio: … by many jobs" verified "$odd" --name=many --rw=randwrite --bs=4k --size=2m --offset_increment=2m --numjobs=8
fi

# --- files and disks ---
truncate -s 64M "$work/sparse"
printf x | dd of="$work/sparse" bs=1 seek=33333333 conv=notrunc status=none
between_disks() {
	"$disk" --quiet copy "$work/sparse" "$url?nsid=2" && medium memory 64M && serve other 1 --export "$medium" --port 0 --nqn nqn.2026-01.test:other || return 1
	other=$(head -1 "$work/other")
	"$disk" --quiet copy "$url?nsid=2" "$other" && "$disk" --quiet copy "$other" "$work/sparse.back" && cmp "$work/sparse" "$work/sparse.back"
}
check "from one disk to another, and to a file" between_disks
check "… that has holes again" sh -c "[ \$(du -k '$work/sparse.back' | cut -f1) -lt 1200 ]"
wider() { # to a disk with larger blocks: the last one is partial
	medium memory 32M && serve wide 1 --export "$medium" --block-size 4096 --port 0 --nqn nqn.2026-01.test:wide || return 1
	wide=$(head -1 "$work/wide")
	head -c $((32 << 20)) /dev/zero | tr '\0' w | "$disk" write "$wide" 0 && head -c $((50001 * 512)) /dev/urandom >"$work/all" &&
		"$disk" --quiet copy "$work/all" "$url" && "$disk" --quiet copy "$url" "$wide" && "$disk" read "$wide" 0 32m >"$work/back" &&
		cmp -n $((50001 * 512)) "$work/all" "$work/back" && [ -z "$(tail -c +$((50001 * 512 + 1)) "$work/back" | tr -d w)" ]
}
check "to a disk of larger blocks: what is behind the last byte remains" wider
check "a file is not copied onto itself" refused "$disk" copy "$work/source" "$work/source"
ln -s source "$work/link"
check "… by another name neither" refused "$disk" copy "$work/source" "$work/link"
check "… and is still there" test "$(stat -c %s "$work/source")" = $size
reader_leaves() { # a pipe that is opened by its name
	timeout 60 "$disk" --quiet copy "$url" /dev/stdout | head -c 1000 >/dev/null
	[ "${PIPESTATUS[0]}" -ne 124 ]
}
check "a copy ends when nobody reads it any more" reader_leaves

# --- read-only ---
cp "$work/sparse" "$work/fixed"
serve fixed.out 1 --export "$work/fixed" --read-only --port 0 --nqn nqn.2026-01.test:fixed
fixed=$(head -1 "$work/fixed.out")
plug fixed "$fixed"
check "read-only: info says so" sh -c "'$disk' info '$fixed' | grep -q 'not write' && '$disk' --json info '$fixed' | grep -q '\"readonly\": true'"
check "… and NBD" sh -c "nbdinfo '$nbd' | grep -q 'is_read_only: true'"
check "… it is read" qemu-img compare -f raw -F raw "$work/fixed" "$nbd"
check "… and not written" refused sh -c "head -c 4096 /dev/zero | '$disk' write '$fixed' 0"
check "… nor by NBD" refused qemu-io -f raw -c 'write 0 4096' "$nbd"

# --- block devices ---
if [ "$(id -u)" = 0 ] && [ -e /dev/loop-control ]; then
	for block in 512 4096; do
		truncate -s 32M "$work/device.$block"
		l=$(losetup -f --show -b $block --direct-io=on "$work/device.$block" 2>/dev/null) || { echo "skip a block device of $block bytes: no loop device"; continue; }
		loops+=("$l")
		serve loop.$block 1 --export "$l" --port 0 --nqn nqn.2026-01.test:loop$block
		u=$(head -1 "$work/loop.$block")
		plug loop$block "$u"
		check "a block device of $block bytes: its blocks are those" sh -c "'$disk' --json info '$u' | grep -q '\"block_size\": $block,'"
		check "… nbdcopy, a length that is no multiple" there_and_back "$nbd"
		device_copies() { "$disk" --quiet copy "$work/source" "$u" && "$disk" --quiet copy "$u" "$work/back" && same "$work/back" && same "$l"; }
		check "… verbena-disk" device_copies
		check "… an odd request" qemu-io -f raw -c 'write -P 3 1000 700' -c 'read -P 3 1000 700' "$nbd"
	done
fi
exit $failed

#!/bin/bash
# iser.sh - Debian's tgtd as a target and libiscsi as its initiator, unmodified: a disk is written and read over iSER
# follows: RFC 7145, tgtadm(8), qemu-img(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../lib.sh"
need tgtd tgtadm iscsi-inq iscsi-readcapacity16 qemu-img qemu-io
[ "$(id -u)" = 0 ] || { skip iser "tgtd is for root"; exit 0; }
sanitized && { skip iser "tgtd was not made for the sanitizer's allocator"; exit 0; }
ldd "$(command -v tgtd)" | grep -q librdmacm || { skip iser "this tgtd knows no iSER"; exit 0; }
MB=16
STEP=256k # libiscsi refuses more in one request over iSER
NAME=iqn.2026-01.test:disk
[ -e /var/run/tgtd ] || mkdir -p /var/run/tgtd
control=$((1000 + RANDOM % 30000)) # tgtd's name for itself

adm() { tgtadm -C "$control" --lld iser "$@"; }
client() { timeout -k 2 60 "${run[@]}" "$@"; }
answers() { adm --op show --mode target >/dev/null 2>&1 || gone "$target"; }

# Over iSER tgtd wants both: the address and the initiator's name
let_in() {
	local i lib=iqn.2007-10.com.github:sahlberg:libiscsi
	adm --op bind --mode target --tid 1 -I ALL || return 1
	for i in $lib:iscsi-inq $lib:iscsi-readcapacity16 $lib:iscsi-perf iqn.2010-11.libiscsi:iscsi-perf iqn.2008-11.org.linux-kvm; do
		adm --op bind --mode target --tid 1 -Q $i || return 1
	done
}

# A target of one disk; both listeners at ports of their own, so that another tgtd is in nobody's way
start_target() {
	free_port
	local tcp=$port
	free_port
	timeout -k 2 90 "${run[@]}" tgtd -f -C "$control" --iscsi "portal=127.0.0.1:$tcp" --iser "port=$port" >"$work/target.out" 2>&1 &
	target=$!
	truncate -s ${MB}M "$work/disk"
	if wait_for 20 answers && adm --op new --mode target --tid 1 -T $NAME &&
		adm --op new --mode logicalunit --tid 1 --lun 1 -b "$work/disk" && let_in; then
		URL=iser://$1:$port/$NAME/1
		return 0
	fi
	tail "$work/target.out"
	return 1
}

inquires() { client iscsi-inq "$URL" | tee /dev/stderr | grep -q "Vendor:IET"; }
tells_size() { client iscsi-readcapacity16 "$URL" | tee /dev/stderr | grep -q "Total size:$((MB << 20))\|RETURNED LOGICAL BLOCK ADDRESS:$(((MB << 20) / 512 - 1))"; }
write_image() {
	local i
	split -b $STEP -d -a 3 "$work/image" "$work/part."
	for ((i = 0; i < MB * 4; i++)); do printf 'write -s %s/part.%03d %dk 256k\n' "$work" $i $((i * 256)); done |
		client qemu-io -f raw "$URL" >/dev/null
}
writes_and_reads() {
	head -c ${MB}M /dev/urandom >"$work/image"
	write_image && cmp "$work/image" "$work/disk" &&
		client qemu-img dd -f raw -O raw bs=$STEP if="$URL" of="$work/back" && cmp "$work/image" "$work/back"
}
reads_with() { client timeout -s INT 4 iscsi-perf -b "$2" -m "$1" "$URL" | tr '\r' '\n' | tail -3 | tee /dev/stderr | grep -q "iops"; }

at_once() {
	local i pids=() status=0
	for i in 1 2 3; do
		client qemu-img dd -f raw -O raw bs=$STEP if="$URL" of="$work/back$i" &
		pids+=($!)
	done
	for i in 1 2 3; do wait "${pids[i - 1]}" && cmp "$work/disk" "$work/back$i" || status=1; done
	return $status
}
target_ends() {
	adm --op delete --mode system --force
	adm --op delete --mode target --tid 1 --force >/dev/null 2>&1
	kill "$target"
	wait_for 10 gone "$target"
}

check "tgtd listens for iSER" start_target 127.0.0.1
if [ $failed = 0 ]; then
	check "iscsi-inq asks the disk what it is" inquires
	check "iscsi-readcapacity16 asks for its size" tells_size
	check "an image of $MB MB is written, is on the disk, and is read back" writes_and_reads
	check "three initiators read at once" at_once
	check "iscsi-perf: many reads at once" reads_with 32 8
	check "the target goes when it is told to" target_ends
fi
finish

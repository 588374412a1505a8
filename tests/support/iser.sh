# iser.sh - a disk over iSER: Debian's tgtd as the target, libiscsi's tools and QEMU's as initiators
# follows: RFC 7145, tgtadm(8), iscsi-inq(1), qemu-img(1)
# SPDX-License-Identifier: MIT
# sourced after net/lib.sh

# why_no_iser: prints what is missing; fails if nothing is
why_no_iser() {
	local p
	for p in tgtd tgtadm iscsi-inq iscsi-readcapacity16 iscsi-perf qemu-img; do
		command -v $p >/dev/null || { echo "$p is not installed"; return 0; }
	done
	ldd "$(command -v tgtd)" | grep -q librdmacm || { echo "this tgtd knows no iSER"; return 0; }
	qemu-img --help | grep -qw iser || { echo "this QEMU knows no iSER"; return 0; }
	return 1
}

MB=16
STEP=262144 # libiscsi 1.19 has buffers of this size, and crashes on larger requests
IQN=iqn.2026-01.test:disk
at_a=() at_b=() # the place of initiator and target: one host, or two
where=127.0.0.1 # the address of the target

# --- tgtd's sockets are in a system directory ---
control=$((1000 + RANDOM % 30000)) # its own name
sockets=/var/run/tgtd
[ -e $sockets ] || { mkdir -p $sockets && made_sockets=1; }
iser_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	rm -f $sockets/socket.$control*
	[ -z "${made_sockets:-}" ] || rmdir $sockets 2>/dev/null
	(exit $status)
	net_cleanup
}
trap iser_cleanup EXIT

adm() { tgtadm -C "$control" --lld iser "$@"; }
# ${1:-$where}: an address in the form of URLs
url() { echo "iser://${1:-$where}:3260/$IQN/1"; }
# The same for QEMU, with a limit of its requests
node() { echo "driver=raw,file.driver=blkdebug,file.max-transfer=$STEP,file.image.driver=iscsi,file.image.transport=iser,file.image.portal=$where:3260,file.image.target=$IQN,file.image.lun=1"; }
on_client() { timeout -k 2 $((120 * SLOW)) ${at_a[@]+"${at_a[@]}"} "${run[@]}" "$@"; }

# --- the target ---
# It allows initiators by address and by name, and requires both
let_in() {
	local i lib=iqn.2007-10.com.github:sahlberg:libiscsi
	adm --op bind --mode target --tid 1 -I ALL || return 1
	for i in $lib:iscsi-inq $lib:iscsi-readcapacity16 iqn.2010-11.libiscsi:iscsi-perf iqn.2008-11.org.linux-kvm; do
		adm --op bind --mode target --tid 1 -Q $i || return 1
	done
}
answers() { adm --op show --mode target >/dev/null 2>&1 || gone "$target"; }

# One disk. It listens on 0.0.0.0 and ::, on iSER's own port (RDMA ports belong to this broker). TCP is not used
start_target() {
	free_port
	rm -f "$work/target.out"
	timeout -k 30 $((300 * SLOW)) ${at_b[@]+"${at_b[@]}"} "${run[@]}" tgtd -f -C "$control" --iscsi "portal=127.0.0.1:$port" >"$work/target.out" 2>&1 &
	target=$!
	truncate -s 0 "$work/disk"
	truncate -s ${MB}M "$work/disk"
	wait_for 20 answers && adm --op new --mode target --tid 1 -T $IQN &&
		adm --op new --mode logicalunit --tid 1 --lun 1 -b "$work/disk" && let_in && ! grep "rdma_bind_addr\|rdma_listen" "$work/target.out" && return 0
	tail "$work/target.out"
	return 1
}
sessions() { adm --op show --mode target | sed -n '/I_T nexus info/,/LUN info/p' | grep -c "I_T nexus:"; }
has_sessions() { [ "$(sessions)" -ge "$1" ]; }
has_no_session() { [ "$(sessions)" = 0 ]; }

# tgtd 1.0.85 cannot close an iSER connection when its target is deleted by force, so wait until the last one has gone
target_ends() {
	local status
	wait_for 30 has_no_session || { adm --op show --mode target; return 1; }
	adm --op delete --mode target --tid 1 && adm --op delete --mode system && wait_for 30 gone "$target" || return 1
	wait "$target"
	status=$?
	[ $status = 0 ] || tail "$work/target.out"
	return $status
}

# --- the initiators ---
inquires() { on_client iscsi-inq "$(url "$@")" | tee /dev/stderr | grep -q "Vendor:IET"; }
tells_size() {
	on_client iscsi-readcapacity16 "$(url)" | tee /dev/stderr |
		grep -q "Total size:$((MB << 20))\|RETURNED LOGICAL BLOCK ADDRESS:$(((MB << 20) / 512 - 1))"
}
writes_and_reads() {
	head -c ${MB}M /dev/urandom >"$work/image"
	dd if=/dev/zero of="$work/image" bs=1M seek=5 count=2 conv=notrunc status=none # these have another format
	on_client qemu-img convert -n -W -m 8 -f raw --target-image-opts "$work/image" "$(node)" && cmp "$work/image" "$work/disk" &&
		reads_back "$work/back"
}
reads_back() { on_client qemu-img convert -W -m 8 -O raw --image-opts "$(node)" "$1" && cmp "$work/disk" "$1"; }
reads_at_once() {
	local i pids=() status=0
	for i in 1 2 3; do
		reads_back "$work/back$i" &
		pids+=($!)
	done
	for i in 1 2 3; do wait "${pids[i - 1]}" || status=1; done
	return $status
}
# many BLOCKS REQUESTS: reads of BLOCKS blocks, REQUESTS at once, until it is stopped
many() {
	local c
	rm -f "$work/perf.out"
	on_client iscsi-perf -b "$1" -m "$2" "$(url)" >"$work/perf.out" 2>&1 &
	c=$!
	wait_for 30 grep -qs iops "$work/perf.out" # it prints a line every second
	sleep 2
	kill -INT "$(program_of $c)"
	wait $c
	tr '\r' '\n' <"$work/perf.out" | tail -3 | tee /dev/stderr | grep -q iops
}
survives_a_kill() {
	local c
	on_client iscsi-perf -b 512 -m 32 "$(url)" >/dev/null 2>&1 &
	c=$!
	wait_for 30 has_sessions 1 && sleep 0.5 && kill -9 "$(program_of $c)"
	wait $c
	wait_for 30 has_no_session && inquires
}

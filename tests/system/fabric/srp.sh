#!/bin/bash
# srp.sh - Debian's ibsrpdm and srp_daemon find verbena-srp-target on a simulated fabric, under opensm
# follows: ibsrpdm(1), srp_daemon(1); IBA volume 1, 16.3; man/verbena-srp-target.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
need ibsrpdm
TARGET=$BUILD/storage/verbena-srp-target
[ -x "$TARGET" ] || { skip fabric_srp "verbena-srp-target is not built"; exit 0; }
start_fabric --generate switch:4 --network 10.1.0.0/24
sm host1 &
check "opensm brings up the fabric" wait_for 30 all_active
capability() { on host1 smpquery portinfo "$(lid_of host3)" | grep -c IsDeviceManagementSupported; }
nobody() { ! on host2 ibsrpdm -c 2>&1 | grep ioc_guid; }
check "without a target nobody is found" nobody
check "... and host3 has no device management" test "$(capability)" = 0
VERBENA_NODE=host3 "${run[@]}" "$TARGET" --listen 0.0.0.0 --port 0 --guid 0002c90300001234 --export memory:1M --announce >"$work/target.out" 2>"$work/target.err" &
target=$!
check "the target starts" wait_for 20 grep -q dest= "$work/target.out"
port=$(sed 's/.*://' "$work/target.out")
check "host3 has device management now" test "$(capability)" = 1
service=$(printf '%016x' $((0x13f0000 + port))) # rdma_cm's services without IP addresses: the login is that of InfiniBand
# -c looks for the logins that the kernel has already, and gives up where there is no /sys/class/scsi_host: a kernel without
# SCSI disks. Then it sees one in a mount namespace of its own
finds() { # PROGRAM ARGS…
	if [ -d /sys/class/scsi_host ]; then
		on host2 "$@"
	else
		on host2 unshare -rm sh -c 'mount -t tmpfs none /sys/class && mkdir /sys/class/scsi_host && exec "$@"' - "$@"
	fi
}
listed() {
	finds "$@" >"$work/found" 2>&1
	grep -q "id_ext=0002c90300001234,ioc_guid=0002c90300001234,dgid=.*,pkey=ffff,service_id=$service" "$work/found" || { cat "$work/found"; return 1; }
}
sanitized && skip "ibsrpdm, srp_daemon" "they need the path shim, which a sanitized build does not preload"
check_found() { sanitized || check "$@"; } # what ibsrpdm or srp_daemon finds
check_found "ibsrpdm -c finds it, as add_target takes it" listed ibsrpdm -c
check_found "srp_daemon finds it" listed srp_daemon -o -c -a
described() { on host2 ibsrpdm 2>&1 | tee "$work/long" | grep -q 'SRP.T10:0002c90300001234' || { cat "$work/long"; return 1; }; }
check_found "ibsrpdm describes it" described
disk=srp://10.1.0.3:$port/0002c90300001234
by_the_fabric() {
	on host2 "$BUILD/storage/verbena-disk" info "$disk" >"$work/info" 2>&1 && grep -q 'InfiniBand by Verbena, ib0' "$work/info" || { cat "$work/info"; return 1; }
}
check "an initiator on host2 logs in by the fabric" by_the_fabric
gid=$(sed -n 's/.*dgid=\([0-9a-f]*\).*/\1/p' "$work/found" | sed 's/..../&:/g; s/:$//')
by_gid() { on host2 "$BUILD/storage/verbena-disk" info "srp://[$gid]/0002c90300001234?service=$service" >"$work/info" 2>&1 || { cat "$work/info"; return 1; }; }
check_found "... also by GID and service id, as add_target names it" by_gid
units() { on host2 "$BUILD/storage/verbena-disk" list "srp://[$gid]/0002c90300001234?service=$service" | tee "$work/units" | grep -q "^srp://\[.*\]/.*?service=13f[0-9a-f]*&pkey=ffff&lun=0\$" || { cat "$work/units"; return 1; }; }
check_found "... and lists its units" units
head -c 1M /dev/urandom >"$work/image"
comes_back() {
	on host2 "$BUILD/storage/verbena-disk" copy "$work/image" "$disk" && on host4 "$BUILD/storage/verbena-disk" copy "$disk" "$work/back" && cmp "$work/image" "$work/back"
}
check "what host2 writes, host4 reads" comes_back
taken() { ! VERBENA_NODE=host3 timeout 20 "${run[@]}" "$TARGET" --port 0 --export memory:1M --announce 2>"$work/second" && grep -q 'another program' "$work/second"; }
check "a second target of the host is refused, with the reason" taken
stateless() { ! timeout 20 "${run[@]}" "$TARGET" --port 0 --export memory:1M --state "$work/nowhere" 2>"$work/second" && grep -q 'No such file' "$work/second"; }
check "a directory for reservations that is not there is refused" stateless
misnamed() { ! timeout 20 "${run[@]}" "$TARGET" --port 0 --export memory:1M --announce=ib0:1x 2>"$work/second" && grep -q 'not CA:PORT' "$work/second"; }
check "a port that is not a number is refused" misnamed
kill "$target"
check "the target ends well" wait "$target"
check "host3 has no device management any more" test "$(capability)" = 0
check "nobody is found any more" nobody
stop_fabric
exit $((failed > 0))

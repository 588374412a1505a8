#!/bin/bash
# nvme_linux.sh - the Linux kernel's own NVMe/TCP host, in the emulated guest, and verbena-target: found, used, changed, restarted
# follows: nvme(1); tests/interop/lab
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/nvme.sh"
lab_needs
TARGET=$BUILD/storage/verbena-target
[ -x "$TARGET" ] || { skip linux "verbena-target is not built"; exit 0; }
lab_boots vbnvme
there 'command -v nvme && modprobe nvme-tcp' >/dev/null || { skip linux "the guest has no nvme-cli, or its kernel no nvme-tcp"; exit 0; }

conf() { # MORE NAMESPACES
	cat >"$work/conf.json" <<-EOF
		{"listen": [{"address": "192.0.2.1", "port": 4420}, {"address": "2001:db8:2::1", "port": 4420}],
		 "subsystems": [{"nqn": "$NQN", "allow_any_host": true, "namespaces": [
			{"nsid": 1, "backend": "file", "path": "$work/a.img"}, {"nsid": 2, "backend": "mapped", "path": "$work/b.img"} $1]}]}
	EOF
}
serve() {
	rm -f "$work/target.out"
	ip netns exec "$VERBENA_LAB_NAME" "$TARGET" --config "$work/conf.json" "$@" >"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 test -s "$work/target.out"
}
comes() { # PATTERN in the output of nvme list
	there "for i in \$(seq 60); do nvme list | grep -q '$1' && exit 0; sleep 1; done; nvme list; exit 1"
}

truncate -s 256M "$work/a.img"
truncate -s 64M "$work/b.img" "$work/c.img"
conf ""
check "the target serves" serve
check "its subsystem is discovered by IPv4" there "nvme discover -t tcp -a 192.0.2.1 -s 4420 | grep $NQN"
check "… and by IPv6" there "nvme discover -t tcp -a 2001:db8:2::1 -s 4420 | grep $NQN"
check "the host connects" connects tcp -s 4420 -a 192.0.2.1
check "controller, namespaces and logs are read" there 'set -e; nvme id-ctrl /dev/nvme0; nvme id-ns /dev/nvme0n1; nvme ns-descs /dev/nvme0n1
	nvme smart-log /dev/nvme0; nvme error-log /dev/nvme0; nvme fw-log /dev/nvme0; nvme effects-log /dev/nvme0; nvme ana-log /dev/nvme0'
check "compare, zeroes, verify, deallocate, flush" there 'set -e; nvme write-zeroes /dev/nvme0n2 -s 0 -c 7; nvme compare /dev/nvme0n2 -s 0 -c 0 -z 512 -d /dev/zero
	nvme verify /dev/nvme0n2 -s 0 -c 7; nvme dsm /dev/nvme0n2 -d 1 -s 0 -b 8; nvme flush /dev/nvme0n2 -n 2'
check "a file system is made, filled, checked and trimmed" there 'set -e; mkfs.ext4 -q /dev/nvme0n1; mkdir -p /m; mount /dev/nvme0n1 /m; cp -r /usr/bin /m
	cd /usr/bin; find . -type f | xargs md5sum >/run/sums; umount /m; fsck.ext4 -fn /dev/nvme0n1; mount /dev/nvme0n1 /m; cd /m/bin; md5sum --quiet -c /run/sums
	cd /; fstrim /m; umount /m'
conf ", {\"nsid\": 3, \"backend\": \"file\", \"path\": \"$work/c.img\"}"
truncate -s 384M "$work/a.img"
kill -HUP "$target"
check "a namespace that is added comes up" comes nvme0n3
check "one that has grown is seen to have" comes "402.65  *MB"
works_on 'dd if=/dev/nvme0n1 of=/dev/null bs=1M iflag=direct; dd if=/dev/zero of=/dev/nvme0n2 bs=64k oflag=direct; mkfs.ext4 -q /dev/nvme0n1; mount /dev/nvme0n1 /m
	for i in 1 2 3 4 5 6; do cp -r /usr/bin /m/$i; sync; done; umount /m; fsck.ext4 -fn /dev/nvme0n1'
check "the target ends well in the middle of it" ended_well
check "another takes its place" serve --threads
check "the host goes on as if nothing had been" came_through
check "the host leaves" disconnect
check "it comes back with digests" connects tcp -s 4420 -a 192.0.2.1 -g -G
check "what was written is read, with digests" verifies /dev/nvme0n1 --rw=randrw --bsrange=4k-256k --size=24M
check "… from the page cache" verifies /dev/nvme0n2 --rw=randrw --bsrange=512-256k --size=24M
check "the host leaves" disconnect
check "the target ends well" ended_well
exit $((failed > 0))

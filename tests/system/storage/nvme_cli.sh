#!/bin/bash
# nvme_cli.sh - nvme(1), unmodified, asks verbena-target's core everything that it can ask a controller
# follows: nvme(1); tests/system/storage/nvme_passthrough.c
# SPDX-License-Identifier: MIT
# usage: nvme_cli.sh LIBRARY
source "$(cd "$(dirname "$0")" && pwd)/../../support/lib.sh"
library=$1
need nvme
C=/dev/nvme99 N=/dev/nvme99n1
head -c 4096 /dev/zero >"$work/zeros"
asks() { LD_PRELOAD=$library timeout 20 nvme "$@"; }
# Lines of arguments of nvme: all must succeed
answered() {
	local line
	while read -r line; do
		[ -n "$line" ] || continue
		# shellcheck disable=SC2086
		eval "asks $line" >"$work/nvme" 2>&1 || { echo "nvme $line"; cat "$work/nvme"; return 1; }
	done
}
# … lines of a status and arguments: all must fail with that status
refused() {
	local status line
	while read -r status line; do
		[ -n "$status" ] || continue
		eval "asks $line" >"$work/nvme" 2>&1 && { echo "nvme $line: succeeds"; cat "$work/nvme"; return 1; }
		grep -qi "(0x0*$status)" "$work/nvme" || { echo "nvme $line: not $status"; cat "$work/nvme"; return 1; }
	done
}

check "controller, namespaces and lists are read" answered <<-EOF
	id-ctrl -H $C
	id-ns -H $N
	id-ns -n 2 $C
	list-ns $C
	list-ns -a $C
	list-ctrl $C
	list-ctrl -n 1 $C
	ns-descs $N
	nvm-id-ctrl $C
	nvm-id-ns $N
	get-ns-id $N
	get-property -o 0 $C
	get-property -o 0x1c $C
EOF
check "each log that it has is read" answered <<-EOF
	smart-log $C
	error-log $C
	fw-log $C
	changed-ns-list-log $C
	ana-log $C
	effects-log -H $C
	resv-notif-log $C
	get-log -i 2 -l 512 $C
EOF
check "each feature is read and set" answered <<-EOF
	get-feature -f 1 -H $C
	get-feature -f 2 -H $C
	get-feature -f 4 -H $C
	get-feature -f 5 -H $C
	get-feature -f 6 -H $C
	get-feature -f 7 -H $C
	get-feature -f 0xa -H $C
	get-feature -f 0xb -H $C
	get-feature -f 0xe -H $C
	get-feature -f 0xf -H $C
	get-feature -f 0x81 --cdw11=1 -l 16 $C
	get-feature -f 0x82 -n 1 $C
	get-feature -f 0x83 -n 1 $C
	get-feature -f 6 -s 1 $C
	get-feature -f 6 -s 3 $C
	get-feature -f 0xe -s 3 $C
	set-feature -f 1 -v 3 $C
	set-feature -f 4 -v 340 $C
	set-feature -f 6 -v 0 $C
	set-feature -f 0xb -v 0x100 $C
	set-feature -f 0xf -v 15000 $C
	set-feature -f 0x82 -n 1 -v 2 $C
EOF
check "data is written, read, compared, zeroed, verified and deallocated" answered <<-EOF
	write $N -s 0 -c 7 -z 4096 -d $work/zeros
	read $N -s 0 -c 7 -z 4096 -d $work/back
	compare $N -s 0 -c 7 -z 4096 -d $work/zeros
	write-zeroes $N -s 0 -c 7
	write-zeroes $N -s 0 -c 7 -d
	verify $N -s 0 -c 7
	dsm $N -d -s 0 -b 8
	flush $N
	resv-register $N -n 1 -k 7 -r 0
	resv-report $N -n 1 -e
	io-passthru $N -o 2 -n 1 -l 512 -r --cdw12=0
EOF
check "the controller is reset, its namespaces are scanned" answered <<-EOF
	reset $C
	ns-rescan $C
EOF
check "what it does not have is refused as such" refused <<-EOF
	4002 id-nvmset $C
	4002 id-uuid $C
	4002 id-iocs $C
	4002 id-domain $C
	4002 list-endgrp $C
	4002 id-ns-granularity $C
	4002 primary-ctrl-caps $C
	4002 list-secondary $C
	4109 telemetry-log -o $work/telemetry $C
	4109 endurance-log -g 1 $C
	4109 predictable-lat-log -i 1 $C
	4109 persistent-event-log -a 0 $C
	4109 self-test-log $C
	4109 sanitize-log $C
	4109 supported-log-pages $C
	4109 fid-support-effects-log $C
	4109 mi-cmd-support-effects-log $C
	4109 boot-part-log -l 0 -f $work/boot $C
	4001 device-self-test -s 1 $C
	4001 format -f -n 1 $C
	4001 create-ns -s 8 -c 8 -f 0 $C
	4001 delete-ns -n 1 $C
	4001 attach-ns -n 1 -c 1 $C
	4001 fw-commit -s 1 -a 1 $C
	4001 sanitize -a 2 $C
	4001 security-recv -p 1 -x 512 $C
	4001 capacity-mgmt -o 0 $C
	4001 get-lba-status -n 1 -s 0 -m 8 -a 0x11 -l 0 $C
	4001 dir-receive -n 1 -D 0 -O 1 $C
	4001 lockdown $C
	4001 write-uncor $N -s 0 -c 7
	4001 copy $N -d 0 -s 8 -b 1
	4002 get-feature -f 0x10 $C
	4002 get-feature -f 0x33 $C
	4002 set-feature -f 0x33 -v 1 $C
	410d set-feature -f 6 -v 1 -s $C
	4080 read $N -s 0xffffffffff -c 0 -z 512 -d $work/back
	4020 io-passthru $N -o 8 -n 2 --cdw12=0
	400b id-ns -n 9999 $C
EOF
no_subsystem_reset() { ! asks subsystem-reset $C; }
check "a reset of the subsystem is not there" no_subsystem_reset
exit $((failed > 0))

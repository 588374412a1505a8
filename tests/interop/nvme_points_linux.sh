#!/bin/bash
# nvme_points_linux.sh - the points that blktests' nvme tests check, and nvme-cli's commands: the Linux kernel's host and verbena-target
# follows: blktests, tests/nvme (what is checked; numbers in the sentences); nvme(1); tests/interop/lab
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lab/lib.sh"
source "$(dirname "$0")/lab/nvme.sh"
lab_needs
TARGET=$BUILD/storage/verbena-target
[ -x "$TARGET" ] || { skip points_linux "verbena-target is not built"; exit 0; }
lab_boots vbnvp
there 'command -v nvme && modprobe -a nvme-tcp nvme-rdma' >/dev/null || { skip points_linux "the guest has no nvme-cli, or its kernel no nvme-tcp or nvme-rdma"; exit 0; }
HOSTID=11111111-2222-3333-4444-555555555555
UUID=00112233-4455-6677-8899-aabbccddeeff
other= # a second target, which is a referral of the first
points_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	[ -z "$other" ] || kill -9 "$other" 2>/dev/null
	(exit $status)
	lab_cleanup
}
trap points_cleanup EXIT

# --- the target ---
subsystem() { # NQN MORE-NAMESPACES
	echo "{\"nqn\": \"$1\", \"allow_any_host\": true, \"namespaces\": [{\"nsid\": 1, \"backend\": \"file\", \"path\": \"$work/a.img\", \"uuid\": \"$UUID\"},
		{\"nsid\": 2, \"backend\": \"memory\", \"size\": \"32M\"} ${2:-}]}"
}
conf() { # QUEUES MORE-NAMESPACES MORE-SUBSYSTEMS
	cat >"$work/conf.json" <<-EOT
		{"listen": [{"transport": "tcp", "address": "192.0.2.1", "port": 4420}, {"transport": "rdma", "address": "192.0.2.1", "port": 4420}],
		 "referrals": [{"transport": "tcp", "address": "192.0.2.1", "port": 4421}, {"transport": "rdma", "address": "192.0.2.1", "port": 4421}], "queues": $1,
		 "subsystems": [$(subsystem $NQN "${2:-}") ${3:-}]}
	EOT
}
target_speaks() { grep -qs ^nvme "$work/target.out" || gone "$target"; }
serve() {
	rm -f "$work/target.out"
	"${on_here[@]}" "${run[@]}" "$TARGET" --config "$work/conf.json" "$@" >"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs ^nvme "$work/target.out"
}
other_target() {
	"${on_here[@]}" "${run[@]}" "$TARGET" --export memory:16M --listen 192.0.2.1 --transport auto --port 4421 --nqn nqn.2026-01.test:referred >"$work/other.out" 2>&1 </dev/null &
	other=$!
	wait_for 20 grep -qs ^nvme+rdma "$work/other.out"
}
reload() { # like conf
	conf "$@"
	kill -HUP "$target"
}
controllers() { "${on_here[@]}" "$TARGET" status --port 4420 | grep -o '"host": "[^"]*"' | wc -l; }
none_left() { [ "$(controllers)" = 0 ]; }
alone() { wait_for 30 none_left || { "${on_here[@]}" "$TARGET" status --port 4420; return 1; }; }

# --- the guest ---
connect() { connects "$t" -s 4420 -c 1 -a 192.0.2.1 "-I $HOSTID" "$@"; }
# output on standard error or by the kernel is a complaint
quietly() { # COMMANDS
	there "set -e; dmesg -C; { $1
		} 2>/run/complaints >/run/said || { tail -5 /run/said; cat /run/complaints; exit 1; }; ! grep . /run/complaints; ! dmesg | grep -i 'warn\|bug\|error\|invalid'"
}
in_guest() { # SECONDS CONDITION
	there "for i in \$(seq $(($1 * 4))); do $2 && exit 0; sleep 0.25; done; $2"
}
generation() { there "nvme discover -t $t -a 192.0.2.1 -s 4420 | sed -n 's/.*Generation counter \([0-9]*\).*/\1/p'"; }

lists() {
	quietly 'nvme list; nvme list -v; nvme list -o json; nvme list-subsys; nvme list-ns /dev/nvme0; nvme list-ns /dev/nvme0 --all; nvme list-ctrl /dev/nvme0
		nvme id-ctrl /dev/nvme0; nvme id-ctrl -H /dev/nvme0; nvme id-ns /dev/nvme0n1; nvme id-ns -H /dev/nvme0n2; nvme ns-descs /dev/nvme0n1; nvme nvm-id-ctrl /dev/nvme0
		nvme get-ns-id /dev/nvme0n1; for o in 0 8 0x14 0x1c; do nvme get-property /dev/nvme0 -H -o $o; done'
}
logs() {
	quietly 'nvme smart-log /dev/nvme0; nvme smart-log /dev/nvme0n1; nvme smart-log -o json /dev/nvme0; nvme error-log /dev/nvme0; nvme error-log -e 16 /dev/nvme0
		nvme effects-log /dev/nvme0; nvme effects-log -H /dev/nvme0; nvme fw-log /dev/nvme0; nvme ana-log /dev/nvme0; nvme changed-ns-list-log /dev/nvme0
		nvme get-log /dev/nvme0 -i 2 -l 512; nvme get-log /dev/nvme0 -i 2 -l 100; nvme get-log /dev/nvme0 -i 1 -l 64 -o 64'
}
features() { quietly 'for f in 1 2 4 5 7 0xa 0xb 0xf; do nvme get-feature /dev/nvme0 -f $f -H; done; nvme get-feature /dev/nvme0 -n 1 -f 6; nvme set-feature /dev/nvme0 -f 0xb -v 0x100'; }
names_itself() {
	there "[ \$(cat /sys/block/nvme0n1/uuid) = $UUID ] && grep -q '^uuid.$UUID' /sys/block/nvme0n1/wwid && nvme ns-descs /dev/nvme0n1 | grep -qi $UUID" &&
		there "nvme list -o json | grep -q /dev/nvme0n1 && nvme list-subsys | grep -q $t && nvme list-subsys | grep -q live"
}
beyond_the_end() {
	there 'set -e; n=$(blockdev --getsz /dev/nvme0n2); head -c 4096 /dev/urandom >/run/one
		rm -f /run/got; nvme write /dev/nvme0n2 -s $((n - 1)) -c 0 -z 512 -d /run/one; nvme read /dev/nvme0n2 -s $((n - 1)) -c 0 -z 512 -d /run/got; head -c 512 /run/one | cmp - /run/got
		for at in "$n 0" "$((n - 1)) 1" "$((n * 2)) 0" "0xffffffffffffffff 0" "0x7fffffffffffffff 7"; do set -- $at
			! nvme read /dev/nvme0n2 -s $1 -c $2 -z 4096 -d /run/got >/run/said 2>&1 && grep -qi "LBA_RANGE\|LBA out of range\|(0x[4]*0*80)\|0x80" /run/said || { echo "$at"; cat /run/said; exit 1; }
			! nvme write /dev/nvme0n2 -s $1 -c $2 -z 4096 -d /run/one >/run/said 2>&1 || { echo "write $at"; exit 1; }
		done'
}
from_user_space() {
	there 'set -e; head -c 1048576 /dev/urandom >/run/random
		for n in 1 2 7 8 9 128 255 256; do for s in 0 33; do z=$((n * 512)); rm -f /run/got; head -c $z /run/random >/run/want
			nvme write /dev/nvme0n2 -s $s -c $((n - 1)) -z $z -d /run/want; nvme read /dev/nvme0n2 -s $s -c $((n - 1)) -z $z -d /run/got; cmp /run/want /run/got; done; done
		nvme compare /dev/nvme0n2 -s 33 -c 255 -z 131072 -d /run/want; ! nvme compare /dev/nvme0n2 -s 34 -c 255 -z 131072 -d /run/want
		nvme dsm /dev/nvme0n2 -d 1 -s 0 -b 128; rm /run/got; nvme read /dev/nvme0n2 -s 0 -c 127 -z 65536 -d /run/got; head -c 65536 /dev/zero | cmp - /run/got
		nvme flush /dev/nvme0n1; nvme flush /dev/nvme0n2; nvme write-zeroes /dev/nvme0n2 -s 33 -c 255; ! nvme id-ns /dev/nvme0 -n 0; nvme id-ns /dev/nvme0 -n 1000'
}
persists() { # longer than its keep alive timeout
	there "set -e; dmesg -C; nvme connect -t $t -a 192.0.2.1 -s 4420 -n nqn.2014-08.org.nvmexpress.discovery -k 2; c=\$(ls /sys/class/nvme | tail -1); sleep 7
		[ \$(cat /sys/class/nvme/\$c/state) = live ]; [ \$(cat /sys/class/nvme/\$c/cntrltype) = discovery ]; nvme get-log /dev/\$c -i 0x70 -l 1024 | grep -q 00; nvme disconnect -d \$c
		! dmesg | grep -i 'keep.alive\|reset\|error'"
}
many_subsystems() {
	local more= n
	for n in $(seq 200); do more+=",{\"nqn\": \"$NQN.$n\", \"allow_any_host\": true, \"namespaces\": [{\"nsid\": 1, \"backend\": \"null\", \"size\": \"1M\"}]}"; done
	reload 8 "" "$more"
	there "for i in \$(seq 40); do n=\$(nvme discover -t $t -a 192.0.2.1 -s 4420 | grep -c 'subnqn: *$NQN[.]'); [ \$n = 400 ] && exit 0; sleep 0.5; done; echo \$n; exit 1" || return 1
	reload 8
	there "for i in \$(seq 40); do n=\$(nvme discover -t $t -a 192.0.2.1 -s 4420 | grep -c 'subnqn: *$NQN[.]'); [ \$n = 0 ] && exit 0; sleep 0.5; done; echo \$n; exit 1"
}
counts_up() {
	local before=$(generation)
	reload 8 "" ",$(subsystem $NQN.more)" && in_guest 20 "nvme discover -t $t -a 192.0.2.1 -s 4420 | grep -q $NQN.more" || return 1
	local between=$(generation)
	reload 8 && in_guest 20 "! nvme discover -t $t -a 192.0.2.1 -s 4420 | grep -q $NQN.more" || return 1
	local after=$(generation)
	echo "$before $between $after"
	[ "$before" -lt "$between" ] && [ "$between" -lt "$after" ] && [ "$(generation)" = "$after" ]
}
refers() {
	local status=0
	there "nvme discover -t $t -a 192.0.2.1 -s 4420 | grep -q 'discovery subsystem referral'" || return 1
	there "nvme connect-all -t $t -a 192.0.2.1 -s 4420; for i in \$(seq 40); do nvme list-subsys | grep -q test:referred && break; sleep 0.5; done
		nvme list-subsys; nvme list-subsys | grep -q test:referred && nvme list-subsys | grep -q $NQN" || status=1
	there "nvme disconnect-all" && alone && return $status
}
leaves_at_once() {
	there "set -e; for i in 1 2 3 4 5 6; do nvme connect -t $t -n $NQN -s 4420 -a 192.0.2.1; nvme disconnect -n $NQN | grep -q 'disconnected 1'; done" && alone
}
comes_and_goes() { # namespaces, beside one that is being written
	local more n round
	works_on "fio --name=v --filename=/dev/nvme0n1 --ioengine=libaio --direct=1 --iodepth=8 --rw=randrw --bsrange=4k-64k --size=16M --loops=4 --verify=crc32c --verify_fatal=1"
	for round in 1 2; do
		more=
		for n in $(seq 3 14); do more+=",{\"nsid\": $n, \"backend\": \"memory\", \"size\": \"$((n + round))M\"}"; done
		reload 8 "$more"
		in_guest 60 "[ \$(nvme list-ns /dev/nvme0 | wc -l) = 14 ] && [ \$(ls -d /sys/block/nvme0n* | wc -l) = 14 ] && [ \$(blockdev --getsize64 /dev/nvme0n14) = $(((14 + round) << 20)) ]" || return 1
		reload 8
		in_guest 60 "[ \$(ls -d /sys/block/nvme0n* | wc -l) = 2 ]" || return 1
	done
	came_through
}
resets() { # rescans under load
	works_on "fio --name=v --filename=/dev/nvme0n1 --ioengine=libaio --direct=1 --iodepth=8 --rw=randrw --bsrange=4k-64k --size=16M --loops=4 --verify=crc32c --verify_fatal=1"
	there 'set -e; for i in 1 2 3; do nvme ns-rescan /dev/nvme0; nvme reset /dev/nvme0; for j in $(seq 80); do [ $(cat /sys/class/nvme/nvme0/state) = live ] && break; sleep 0.25; done
		[ $(cat /sys/class/nvme/nvme0/state) = live ]; echo 1 >/sys/class/nvme/nvme0/rescan_controller; done; echo 1 >/sys/class/nvme/nvme0/reset_controller' && came_through
}
leaves_under_load() {
	there "fio --name=v --filename=/dev/nvme0n1 --ioengine=libaio --direct=1 --iodepth=8 --rw=randwrite --bs=16k --size=64M --time_based --runtime=60 >/run/fio 2>&1 & sleep 2
		nvme disconnect -n $NQN && wait; for i in \$(seq 40); do [ -b /dev/nvme0n1 ] || exit 0; sleep 0.5; done; ls /dev/nvme*; exit 1" && alone
}
other_queues() { # kinds of queues: for writes, and polled
	connect -i 2 -W 1 -P 1 && there "fio --name=v --filename=/dev/nvme0n2 --ioengine=pvsync2 --hipri --direct=1 --rw=randrw --bs=16k --size=512k --verify=crc32c --verify_fatal=1" &&
		there 'grep -q . /sys/block/nvme0n2/queue/io_poll' && disconnect && alone
}
fewer_queues() { # when it reconnects to a restarted target
	connect -i 2 -l 60 && conf 1 && ended_well && serve &&
		in_guest 60 '[ $(cat /sys/class/nvme/nvme0/state) = live ] && [ $(cat /sys/class/nvme/nvme0/queue_count) = 2 ]' && verifies /dev/nvme0n1 --rw=randrw --bs=4k --size=2M || return 1
	conf 8 && ended_well && serve && in_guest 60 '[ $(cat /sys/class/nvme/nvme0/state) = live ] && [ $(cat /sys/class/nvme/nvme0/queue_count) = 3 ]' &&
		verifies /dev/nvme0n1 --rw=randrw --bs=4k --size=2M
}
waits_for_access() {
	"${on_here[@]}" "$TARGET" ana $NQN 1 inaccessible --port 4420 || return 1
	in_guest 20 'grep -q inaccessible /sys/class/nvme/nvme0/nvme0*n1/ana_state' || return 1
	there "rm -f /run/dd; timeout 100 dd if=/dev/nvme0n1 of=/run/got bs=64k count=4 iflag=direct </dev/null >/dev/null 2>/run/dd & sleep 2; kill -0 \$! && ! [ -s /run/dd ]" || return 1
	"${on_here[@]}" "$TARGET" ana $NQN 1 optimized --port 4420 || return 1
	in_guest 20 'grep -q "^optimized" /sys/class/nvme/nvme0/nvme0*n1/ana_state && grep -q 262144 /run/dd'
}
ways() { there "for i in \$(seq 60); do [ \$(nvme list-subsys | grep -c live) != $1 ] || exit 0; sleep 1; done; nvme list-subsys; exit 1"; }
another_way() { # one of two paths to the same namespaces disappears under load
	connects rdma -s 4420 -c 1 -a 192.0.2.1 -I $HOSTID && there "nvme connect -t tcp -n $NQN -s 4420 -a 192.0.2.1 -I $HOSTID" && ways 2 || return 1
	works_on "fio --name=v --filename=/dev/nvme0n1 --ioengine=libaio --direct=1 --iodepth=8 --rw=randrw --bsrange=4k-64k --size=16M --loops=4 --verify=crc32c --verify_fatal=1"
	there "nvme disconnect -d nvme0 && sleep 2" && ways 1 && came_through && disconnect && alone
}
strangers() {
	conf 8 && sed -i 's/"allow_any_host": true/"hosts": ["nqn.2026-01.test:friend"]/' "$work/conf.json" && kill -HUP "$target"
	in_guest 20 "! nvme discover -t $t -a 192.0.2.1 -s 4420 | grep -q 'subnqn: *$NQN\$'" || return 1
	there "! nvme connect -t $t -n $NQN -s 4420 -a 192.0.2.1 -q nqn.2026-01.test:stranger && nvme connect -t $t -n $NQN -s 4420 -a 192.0.2.1 -q nqn.2026-01.test:friend -I $HOSTID" &&
		disconnect && reload 8 && in_guest 20 "nvme discover -t $t -a 192.0.2.1 -s 4420 | grep -q 'subnqn: *$NQN\$'"
}

truncate -s 64M "$work/a.img"
conf 8
check "the target serves" serve
check "… another, too" other_target
[ $failed = 0 ] || exit 1
# An emulated guest without processor time sometimes loses its connection and reconnects: this is reported, and waited
# for
comes_back() {
	there 'dmesg | tail -5' | sed 's/^/#	/'
	in_guest 60 '[ $(cat /sys/class/nvme/nvme0/state) = live ]'
}
still() { AGAIN=1 BETWEEN=comes_back "$@"; }
for t in tcp rdma; do
	check "$t: two hundred subsystems are discovered, and gone again (002)" many_subsystems
	check "$t: a connection to the discovery service is kept alive (003)" persists
	check "$t: its generation counter rises with each change (030)" counts_up
	check "$t: referrals are followed" refers
	check "$t: a host that leaves at once leaves nothing (031)" leaves_at_once
	check "$t: the host connects" connect
	still check "$t: namespaces are named by what they are in sysfs (004, 008, 009)" names_itself
	still check "$t: lists, id-ctrl, id-ns, registers: no complaint (021, 026, 028)" lists
	still check "$t: smart-log, error-log, effects, other logs: no complaint (023, 024, 025)" logs
	still check "$t: features: no complaint" features
	still check "$t: what is beyond the end is refused (018)" beyond_the_end
	still check "$t: reads and writes of any number of blocks from user space (014, 019, 029)" from_user_space
	check "$t: namespaces come and go while another is used (016, 017, 051, 052)" comes_and_goes
	check "$t: the controller is reset, and looked through again, under load (005, 022, 027, 040, 053)" resets
	check "$t: access that is taken away is waited for" waits_for_access
	check "$t: the host leaves under load (040)" leaves_under_load
	check "$t: queues for writes, queues that are polled (047)" other_queues
	check "$t: a target that comes back with fewer queues, and with more (048)" fewer_queues
	check "$t: the host leaves" disconnect
	check "$t: who is not in the list is not let in" strangers
done
check "two ways to one namespace, and one of them goes under load" another_way
kernel_is_well() { ! "$LAB" broke && there '! dmesg | grep "WARNING:\|BUG:"'; }
check "the guest's kernel is well" kernel_is_well
check "the target ends well" ended_well
kill "$other" && wait "$other"
check "… the other, too" test $? = 0
other=
finish

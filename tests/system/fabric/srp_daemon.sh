#!/bin/bash
# srp_daemon.sh - Debian's srp_daemon writes add_target on a simulated fabric; verbena-srp-host logs in, nbdkit serves the disks
# follows: srp_daemon(1); Linux Documentation/ABI/stable/sysfs-driver-ib_srp; man/verbena-srp-host.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
PATH=$PATH:/usr/sbin
need srp_daemon nbdkit nbdcopy nbdinfo
TARGET=$BUILD/storage/verbena-srp-target SRP=$BUILD/storage/verbena-srp-host
[ -x "$TARGET" ] && [ -x "$SRP" ] || { skip fabric_srp_daemon "verbena-srp-target or verbena-srp-host is not built"; exit 0; }
sanitized && { skip fabric_srp_daemon "there is no path shim in sanitizer builds"; exit 0; }
export VERBENA_SRP=$work/srp
ADD=/sys/class/infiniband_srp/srp-ib0-1/add_target
guid=0002c90300001234
head -c 1M /dev/urandom >"$work/image"
start_fabric --generate switch:4 --network 10.1.0.0/24
sm host1 &
check "opensm brings up the fabric" wait_for 30 all_active
VERBENA_NODE=host3 "${run[@]}" "$TARGET" --listen 0.0.0.0 --port 0 --guid $guid --export "$work/image" --export memory:2M --announce >"$work/target.out" 2>"$work/target.err" &
target=$!
check "a target with two disks starts on host3" wait_for 20 grep -q dest= "$work/target.out"
port=$(sed 's/.*://' "$work/target.out")

# dd writes its input by one write(2), so it sees the error. Its message has strerror's words
says() { # WORDS LINE
	printf %s "$2" | on host2 dd of=$ADD conv=notrunc status=none 2>"$work/said.dd"
	grep -q "$1" "$work/said.dd" || { cat "$work/said.dd" "$work/host.err"; return 1; }
}
search() { on host2 srp_daemon -o -c -e -a -i ib0 -p 1 >"$work/found" 2>&1; grep -q "id_ext=$guid" "$work/found" || { cat "$work/found"; return 1; }; }
check "without verbena-srp-host there is no add_target" says 'No such file' "id_ext=1"
start_host() {
	rm -f "$VERBENA_SRP/add_target" # of a killed one
	VERBENA_NODE=host2 "${run[@]}" "$SRP" >"$work/host.out" 2>"$work/host.err" &
	host=$!
	wait_for 10 test -S "$VERBENA_SRP/add_target"
}
check "verbena-srp-host starts" start_host
check "srp_daemon finds the target" search
newest() { sed -n 's/^host\([0-9]*\) unit 0:.*/\1/p' "$work/host.out" | tail -1; }
disk() { echo "nbd+unix:///?socket=$VERBENA_SRP/scsi_host/host$1/lun$2"; }
served() { grep -q "host0 unit 1: $(disk 0 1 | sed 's/?/./')" "$work/host.out" || { cat "$work/found" "$work/host.out" "$work/host.err"; return 1; }; }
check "... and writes add_target: both disks are there when it returns" served
reads() { nbdcopy "$(disk 0 0)" "$work/back" && cmp "$work/image" "$work/back"; }
check "nbdcopy reads the first" reads
writes() { head -c 2M /dev/urandom >"$work/other" && nbdcopy "$work/other" "$(disk 0 1)" && nbdcopy "$(disk 0 1)" "$work/back" && cmp "$work/other" "$work/back"; }
check "... and writes the second" writes
again() { search && [ "$(ls "$VERBENA_SRP/scsi_host")" = host0 ] && ! grep -q 'File exists' "$work/host.err"; }
check "a second search sees the login in /sys/class/scsi_host, and makes no other" again
line=$(grep -o "id_ext=$guid,.*service_id=[0-9a-f]*" "$work/found" | head -1)
check "a second login to the target fails with EEXIST" says 'File exists' "$line"
check "a name that is not known fails with EINVAL" says 'Invalid argument' "$line,max_sector=8"
check "... and so does a value out of range" says 'Invalid argument' "$line,tl_retry_count=9"
check "... and a line without a target" says 'Invalid argument' "id_ext=$guid,ioc_guid=$guid"
check "a number that is too large fails with ERANGE" says 'out of range' "${line/id_ext=/id_ext=1}"
check "a GID that nobody has fails with EINVAL" says 'Invalid argument' "$(sed 's/^id_ext=.\{16\}/id_ext=1/; s/dgid=.\{32\}/dgid=fe800000000000000000000000000001/' <<<"$line")"
check "a target that rejects the login fails with ECONNRESET" says 'reset by peer' "${line/ioc_guid=0002/ioc_guid=0003}"
check "nobody at the IP address fails with ECONNRESET" says 'reset by peer' "id_ext=1,ioc_guid=1,dest=10.1.0.4:5555"
by_ip() { # in the words of a shell, with numbers that limit the disk
	on host2 sh -c "echo 'id_ext=$guid,ioc_guid=$guid,dest=10.1.0.3:$port,max_sect=64,queue_size=8,ch_count=2' >$ADD" && grep -q "^host[0-9]* unit 1: " <(grep -v '^host0 ' "$work/host.out")
}
check "a target is added by its IP address too" by_ip
number=$(newest)
limited() { nbdcopy "$(disk "$number" 0)" "$work/back" && cmp "$work/image" "$work/back"; }
check "... and its disk is the same" limited
deletes() { "$SRP" --delete "host$number" && [ ! -e "$VERBENA_SRP/scsi_host/host$number" ] && ! "$SRP" --delete "host$number" 2>/dev/null; }
check "--delete ends a login, once" deletes
added() { on host2 "$SRP" --add "id_ext=$guid,ioc_guid=$guid,dest=10.1.0.3:$port" && ! on host2 "$SRP" --add 'id_ext=1' 2>"$work/said.add" && grep -q 'Invalid argument' "$work/said.add"; }
check "--add logs in, and says what is wrong" added
size() { [ "$(nbdinfo --size "$(disk 0 1)")" = 2097152 ]; }
check "the first login's disks are still there" size
broken() {
	local last
	last=$(newest)
	kill $(cat "$VERBENA_SRP/scsi_host/host0"/*.pid) && wait_for 5 test ! -e "$VERBENA_SRP/scsi_host/host0" && search || return 1
	[ "$(newest)" != "$last" ] && [ -S "$VERBENA_SRP/scsi_host/host$(newest)/lun0" ]
}
check "a login whose disks have ended is made again by the next search" broken
units=$(cat "$VERBENA_SRP"/scsi_host/host*/*.pid)
kill "$host"
check "verbena-srp-host ends" wait "$host"
ended() { local p; for p in $units; do gone "$p" || return 1; done; }
check "... and its disks with it" ended
check "... and nothing is left of its logins" test ! -e "$VERBENA_SRP/scsi_host"
killed() {
	start_host && search && units=$(cat "$VERBENA_SRP"/scsi_host/host*/*.pid) && [ -n "$units" ] || return 1
	kill -9 "$host"
	wait_for 10 ended
}
check "the disks of a killed one end, too" killed
check "... and another one starts in its place" start_host
kill "$host" "$target"
wait "$host" "$target"
stop_fabric
exit $((failed > 0))

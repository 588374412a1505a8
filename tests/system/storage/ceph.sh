#!/bin/bash
# ceph.sh - a Ceph cluster of Debian's unmodified programs on the RDMA messenger: one on one host, beside it one on three hosts
# follows: docs/ceph.md; rados(8), rbd(8), ceph-fuse(8), radosgw(8)
# SPDX-License-Identifier: MIT
# By hand: CEPH=long also runs the control by TCP, all clients, kills, rdma_cm and iWARP; CEPH=control only the control;
# CEPH=kills only ten minutes of kills at random (CEPH_KILLS: seconds; CEPH_SEED: which);
# CEPH=gateways only the cases of several gateways, CEPH_TIMES times; CEPH=storage only the tests of storage with images.
# CEPH_MANY=yes: then with 256 images at once. CEPH_PARTS: some of control, storage, memory, roce, cm, iwarp
source "$(dirname "$0")/../../support/lib.sh"
need ceph-mon ceph-mgr ceph-osd monmaptool rados rbd python3 fio ip
[ "$(id -u)" = 0 ] || { skip ceph "only root makes network namespaces"; exit 0; }
sanitized && { skip ceph "its programs with a sanitizer's library first need more memory than the machine has"; exit 0; }
source "$ROOT/tests/support/ceph.sh"
source "$(dirname "$0")/ceph_gateway.sh"
source "$(dirname "$0")/ceph_gateways.sh"
source "$(dirname "$0")/ceph_caps.sh"
source "$(dirname "$0")/ceph_full.sh"
source "$(dirname "$0")/ceph_storage.sh"
store=bluestore

second=        # the other cluster's shell
shell=$BASHPID # that has started the daemons in ceph_pids
ceph_cleanup() {
	local status=$? p
	[ $BASHPID = "$shell" ] || return
	trap - EXIT
	trap '' INT TERM # another signal would end the shell of the other cluster, and leave its network
	for p in $(jobs -p); do # a signal to the shell that has started a program would not reach the program
		[ "$p" = "$second" ] || kill -9 "$(program_of "$p")"
	done 2>/dev/null
	ceph_down
	[ $hosts = one ] || ceph_network_gone
	medium_network_gone
	[ $BASHPID = $$ ] || exit $status
	(exit $status)
	cleanup
}
trap ceph_cleanup EXIT
trap 'exit 130' INT TERM

up() {
	ceph_up && osds_up 3 && return 0
	tail -n 20 "$cluster"/*.out
	return 1
}
pools() {
	printf '%s\n' "osd pool create p 4" "osd erasure-code-profile set two-and-one k=2 m=1 crush-failure-domain=osd" \
		"osd pool create ec 4 4 erasure two-and-one" "osd pool create disks 4" "osd pool application enable disks rbd" | ceph && clean
}
# The bytes that the queue pairs of all hosts have sent
sent() {
	local host last=0 replies
	[ $hosts = one ] || last=2
	replies=$(for host in $(seq 0 $last); do at "$host" "$VERBENA" stat --json || return 1; done) || return 1
	python3 -c '
import json, sys
text, total = sys.stdin.read().strip(), 0
while text:
    reply, end = json.JSONDecoder().raw_decode(text)
    total, text = total + sum(d["counters"]["xmit_bytes"] for d in reply["devices"]), text[end:].strip()
print(total)' <<<"$replies"
}
crosses() { # COMMAND…: it succeeds, and its 5 MB go to an OSD, from there to two others, and back
	local before after
	before=$(sent) && "$@" && after=$(sent) && echo "$((after - before)) bytes" && [ $((after - before)) -gt 15000000 ]
}
object() { # POOL BYTES: written, read back, the same
	head -c "$2" /dev/urandom >"$work/written"
	client rados -p "$1" put object "$work/written" && client rados -p "$1" get object "$work/read" && cmp "$work/written" "$work/read"
}
bench() { # POOL
	client rados -p "$1" bench 1 write -t 4 -b 1M --no-cleanup && client rados -p "$1" bench 1 seq -t 4 && client rados -p "$1" bench 1 rand -t 4 &&
		client rados -p "$1" cleanup
}
fio_on() { # ENGINE POOL ARGS…
	at 0 env "CEPH_CONF=$cluster/ceph.conf" timeout -k 5 $((90 * SLOW)) fio --name=x --ioengine="$1" --clientname=admin --pool="$2" --rw=randwrite \
		--bs=16k --size=8m --iodepth=8 --verify=crc32c --verify_fatal=1 --verify_state_save=0 "${@:3}"
}
disk() { client rbd create "disks/$1" --size 64M; }

# loaded COMMAND…: COMMAND succeeds while objects are written, which are then found whole
loaded() {
	local status=0 load i
	for i in 1 2 3 4; do
		head -c 1M /dev/urandom >"$work/load$i"
	done
	(
		trap - EXIT
		n=0
		until [ -e "$work/stop" ]; do
			i=$((n % 4 + 1))
			LIMIT=120 client rados -p p put "load$n" "$work/load$i" || exit 1
			n=$((n + 1))
		done
		echo $n >"$work/written.n"
	) &
	load=$!
	"$@" || status=$?
	touch "$work/stop"
	wait $load || { echo "a write failed"; status=1; }
	rm -f "$work/stop"
	found || status=1
	return $status
}
found() {
	local i n=$(cat "$work/written.n")
	for ((i = n > 10 ? n - 10 : 0; i < n; i++)); do
		client rados -p p get "load$i" "$work/read" && cmp "$work/read" "$work/load$((i % 4 + 1))" || return 1
	done
	[ "$n" -gt 0 ]
}
killed() {
	sleep 1
	ceph_kill KILL osd2 && osds_up 2 && sleep 2 && osd_start 2 && osds_up 3 && clean
}
cut_off() {
	cut 2 && osds_up 2 && sleep 2 && join 2 && osds_up 3 && clean
}

# Daemons are killed at random and started again while fio writes, and reads everything that it has written, each block with
# its checksum. All OSDs at once are a power cut, and without the monitor nobody learns who is up
draw() { seed=$(((seed * 1103515245 + 12345) % 2147483648)); drawn=$((seed / 65536 % $1)); }
kill_some() {
	local i victims=()
	draw 8
	case $drawn in
	0) victims=(osd0 osd1 osd2) ;;
	1) victims=(mon) ;;
	2 | 3) draw 3; victims=("osd$drawn" "osd$(((drawn + 1) % 3))") ;;
	*) draw 3; victims=("osd$drawn") ;;
	esac
	echo "$((SECONDS - began)) s: kills ${victims[*]}"
	ceph_kill KILL "${victims[@]}" || return 1
	draw 4
	sleep $drawn
	for i in "${victims[@]}"; do
		if [ "$i" = mon ]; then daemon mon 0 ceph-mon -i a; else osd_start "${i#osd}"; fi
	done
	killed_n=$((killed_n + ${#victims[@]}))
}
killed_at_random() {
	local load status=0 began=$SECONDS seconds=${CEPH_KILLS:-600} seed=${CEPH_SEED:-$RANDOM} drawn killed_n=0
	echo "CEPH_SEED=$seed"
	client rbd create disks/k --size 32M || return 1
	at 0 env "CEPH_CONF=$cluster/ceph.conf" timeout -k 5 $((seconds + 300)) fio --name=x --ioengine=rbd --clientname=admin --pool=disks --rbdname=k --rw=randwrite \
		--bsrange=4k-64k --size=32m --iodepth=8 --time_based --runtime="$seconds" --verify=crc32c --verify_fatal=1 --verify_backlog=512 --verify_state_save=0 >"$work/fio.out" 2>&1 &
	load=$!
	while [ $((SECONDS - began)) -lt "$seconds" ] && ! gone $load; do
		kill_some || { status=1; break; }
		osds_up 3 && clean || { echo "not clean"; ceph -s; status=1; break; }
	done
	wait $load || status=1
	tail -n 25 "$work/fio.out"
	echo "$killed_n daemons were killed in $((SECONDS - began)) s"
	! grep "verify:\|error=" "$work/fio.out" && return $status
}

cephfs() {
	printf '%s\n' "osd pool create fs.meta 4" "osd pool create fs.data 4" "fs new fs fs.meta fs.data" | ceph || return 1
	daemon mds 0 ceph-mds -i m
	rm -rf "$work/mount" && mkdir "$work/mount"
	ceph_is 60 mds && at 0 ceph-fuse --conf "$cluster/ceph.conf" "$work/mount" || return 1
	mkdir "$work/mount/tree" && cp -r "$ROOT/docs" "$work/mount/tree" && sync -f "$work/mount" && umount "$work/mount" &&
		at 0 ceph-fuse --conf "$cluster/ceph.conf" "$work/mount" && diff -r "$ROOT/docs" "$work/mount/tree/docs"
	local status=$?
	umount "$work/mount"
	return $status
}

# s3_says METHOD RESOURCE ARGS…: a request with a signature of version 2, by a program that knows nothing of Verbena
s3_says() {
	local when=$(date -uR) signature
	signature=$(printf '%s\n\n\n%s\n%s' "$1" "$when" "$2" | openssl dgst -sha1 -hmac secret -binary | base64)
	outside curl -sS --fail-with-body -X "$1" -H "Date: $when" -H "Authorization: AWS access:$signature" "http://$(address_of 0):$port$2" "${@:3}"
}
s3() {
	LIMIT=120 client radosgw-admin user create --uid=user --display-name=user --access-key=access --secret-key=secret || return 1
	free_port
	daemon rgw 0 radosgw -n client.rgw --rgw-frontends "beast endpoint=$(address_of 0):$port"
	head -c 9M /dev/urandom >"$work/written"
	wait_for 60 outside curl -s -o /dev/null "http://$(address_of 0):$port" && s3_says PUT /bucket && s3_says PUT /bucket/object -T "$work/written" &&
		s3_says GET /bucket/object -o "$work/read" && cmp "$work/written" "$work/read" && s3_says GET /bucket | grep '<Size>9437184</Size>'
}
outside() { # a program that knows nothing of Verbena
	if [ $hosts = one ]; then "$@"; else ip netns exec "${netns}0" "$@"; fi
}

# use HOW: a cluster, from the first daemon to the last; CASES beside those of every cluster
use() {
	local how=$1 before=$failed i
	check "$how: monitor, manager and three OSDs come up" up
	if [ $failed -gt "$before" ]; then # the rest would only wait
		ceph_down
		return
	fi
	check "$how: a replicated and an erasure-coded pool" pools
	if on_rdma; then
		check "$how: an object of 5 MB is read as it was written, and goes through queue pairs" crosses object p 5000000
	else
		check "$how: an object of 5 MB is read as it was written" object p 5000000
	fi
	check "$how: the same, erasure-coded" object ec 5000001
	check "$how: rados bench writes, reads in sequence and at random" bench p
	! in_it disk || check "$how: fio's rbd engine finds what it wrote on a disk" rbd_disk
	! in_it gateway || gateway_cases "$how"
	! in_it gateways || for ((i = 0; i < ${CEPH_TIMES:-1}; i++)); do several_gateways_cases "$how"; done
	! in_it full || full_cases "$how"
	! in_it storage || storage_cases "$how"
	! in_it all || check "$how: rbd bench" client rbd bench --io-type write --io-total 16M --io-size 64K disks/d
	! in_it all || check "$how: fio's rados engine finds what it wrote" fio_on rados p "--conf=$cluster/ceph.conf"
	# ip netns exec would mount it out of sight
	! in_it all || [ $hosts != one ] || check "$how: CephFS by ceph-fuse" cephfs
	! in_it all || check "$how: an S3 client" s3
	! in_it killed || check "$how: an OSD is killed under load, comes back, recovers" loaded killed
	! in_it kills || check "$how: daemons are killed at random for ${CEPH_KILLS:-600} s, and every write is found" killed_at_random
	! in_it cut || check "$how: a host is cut off under load, joins again, recovers" loaded cut_off
	! in_it scrub || check "$how: a deep scrub finds nothing" deep_scrub_finds_nothing
	[ -z "${KEEP_LOGS:-}" ] || { mkdir -p "$KEEP_LOGS" && cp "$cluster"/*.log "$cluster"/*.out "$cluster/ceph.conf" "$KEEP_LOGS"; }
	check "$how: all daemons end" ceph_down
}
in_it() { [[ " $cases " = *" $1 "* ]]; } # CASE
rbd_disk() { disk d && fio_on rbd disks --rbdname=d; }

long=no cases="disk gateway gateways"
case ${CEPH:-} in
long | control) long=yes cases="disk gateway gateways full all killed scrub" ;;
kills) cases="kills scrub" ;;
gateways) cases="gateways" ;;
storage) long=yes ;;
esac
part() { [[ " ${CEPH_PARTS:-control storage memory roce cm iwarp} " = *" $1 "* ]]; } # NAME
three_hosts() {
	auth=none hosts=three cases="cut scrub"
	[ $long = no ] || cases="disk all killed cut scrub" # the gateway listens on one host
	check "three hosts" ceph_network
	rdma_options=("ms_async_rdma_device_name = roce_net0" "ms_async_rdma_gid_idx = 1")
	! part roce || use "RoCE, three hosts"
	[ $long = yes ] || return 0
	by_cm=("ms_async_rdma_type = iwarp" "ms_async_rdma_cm = true")
	rdma_options+=("${by_cm[@]}")
	! part cm || use "RoCE by rdma_cm, three hosts"
	export VERBENA_DEVICES=iwarp:net0
	rdma_options=("ms_async_rdma_device_name = iwarp_net0" "ms_async_rdma_gid_idx = 0" "${by_cm[@]}")
	! part iwarp || use "iWARP, three hosts"
}
# Another cluster, in a shell and a folder of its own: most of the time each of the two waits
beside() { # COMMAND…
	trap ceph_cleanup EXIT # bash forgets it in a shell of its own
	trap 'exit 130' INT TERM
	shell=$BASHPID second= work=$work/beside failed=0
	cluster=$work/ceph
	mkdir -p "$work"
	"$@"
	exit $((failed > 0))
}

[ $long = no ] || [ "${CEPH:-}" = storage ] || ! part control || use "TCP, one host"
[ "${CEPH:-}" != control ] || finish
storage_by_tcp() { # their hosts have networks of their own
	local here=198.51.100.1 cases=storage
	check "a network for the hosts of the tests of storage" medium_network && use "storage, TCP"
}
[ $long = no ] || ! part storage || storage_by_tcp
[ "${CEPH:-}" != storage ] || finish

messenger=async+rdma
if [ -z "${CEPH:-}" ]; then
	(beside three_hosts) >"$work/beside.out" 2>&1 &
	second=$!
fi
rdma_options=("ms_async_rdma_device_name = roce_lo" "ms_async_rdma_gid_idx = 1")
auth=cephx
[ $long = no ] || cases+=" kills"
! part memory || use "shared memory, one host"
if [ -n "$second" ]; then
	wait $second || failed=$((failed + 1))
	cat "$work/beside.out"
	grep -q ' all daemons end' "$work/beside.out" || check "the cluster of three hosts gets to its end" false
elif [ $long = yes ]; then
	three_hosts
fi
finish

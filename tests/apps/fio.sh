#!/bin/bash
# fio.sh - Debian's fio with its rdma engine, unmodified: writes, reads and messages, on one host and between two
# follows: fio(1), "I/O engine" rdma
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v ethtool >/dev/null; then
	source "$HERE/../net/lib.sh"
	two_hosts=1
else
	source "$HERE/../lib.sh"
	two_hosts=
fi
need fio
fio --enghelp=rdma >/dev/null 2>&1 || { skip fio "this fio has no rdma engine"; exit 0; }
LIMIT=25
on_server=(env) on_client=(env) there=127.0.0.1

# job VERB SIZE ARGS…: both ends move SIZE without an error. The server names no address: this fio binds to the bytes of the name
# The side that writes is the client, whatever its verb
job() {
	local verb=$1 size=$2 depth=() s c
	shift 2
	# it allows no RNR retries: a receive for each message
	[ "$verb" != send ] || depth=(--iodepth=300)
	free_port
	(cd "$work" && exec timeout -k 2 $((LIMIT * SLOW)) "${on_server[@]}" "${run[@]}" fio --name=s --ioengine=rdma --port=$port \
		--verb=recv --rw=read --size="$size" "$@" "${depth[@]}" >"$work/server.out" 2>&1 </dev/null) &
	s=$!
	for _ in 1 2 3 4 5 6 7 8; do
		sleep 0.5
		(cd "$work" && exec timeout -k 2 $((LIMIT * SLOW)) "${on_client[@]}" "${run[@]}" fio --name=c --ioengine=rdma --hostname=$there --port=$port \
			--verb="$verb" --rw=write --size="$size" "$@" >"$work/client.out" 2>&1 </dev/null) && c=0 || c=$?
		grep -q "REJECTED" "$work/client.out" && ! gone $s || break # nobody listens yet
	done
	[ $c = 0 ] || wait_for 2 gone $s || kill $s
	wait $s
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && grep -q 'err= 0' "$work/client.out" && grep -q 'err= 0' "$work/server.out" && return 0
	echo "server ended with $s, client with $c"
	said_by_both
	return 1
}
jobs_here() { # WHERE COMMAND-IN-FRONT…
	local where=$1 d
	shift
	for d in 1 16; do
		check "fio $where: mem_write, depth $d" "$@" job write 8m --bs=64k --iodepth=$d
		check "fio $where: mem_read, depth $d" "$@" job read 8m --bs=64k --iodepth=$d
		check "fio $where: send, depth $d" "$@" job send 8m --bs=64k --iodepth=$d
	done
	check "fio $where: small writes" "$@" job write 1m --bs=512 --iodepth=32
	check "fio $where: small messages" "$@" job send 1m --bs=4k --iodepth=32
	check "fio $where: writes of 1 MiB" "$@" job write 32m --bs=1m --iodepth=4
	check "fio $where: verify" "$@" job write 4m --bs=16k --iodepth=4 --verify=crc32c --do_verify=0
}
jobs_here "on one host"
if [ -n "$two_hosts" ]; then
	check "two hosts" hosts
	on_server=("${on_b[@]}") on_client=("${on_a[@]}") there=$V4_B
	jobs_here "across the cable" crossing 1000000
else
	skip "fio between two hosts" "only root makes network namespaces"
fi
finish

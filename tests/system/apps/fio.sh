#!/bin/bash
# fio.sh - Debian's fio with its rdma engine, unmodified: writes, reads and messages, on one host and between two
# follows: fio(1), "I/O engine" rdma
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v ethtool >/dev/null; then
	source "$HERE/../net/lib.sh"
	two_hosts=1
else
	source "$HERE/../../support/lib.sh"
	two_hosts=
fi
need fio
fio --enghelp=rdma >/dev/null 2>&1 || { skip fio "this fio has no rdma engine"; exit 0; }
source "$HERE/../../support/fio.sh"

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
	on_server=("${on_b[@]}") on_client=("${on_a[@]}") there=$V4_B fio_ready=(fio_answers)
	jobs_here "across the cable" crossing 1000000
else
	skip "fio between two hosts" "only root makes network namespaces"
fi
finish

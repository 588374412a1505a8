#!/bin/bash
# dissect.sh - tshark decodes a packet of every opcode as we wrote it, field by field, without complaints
# SPDX-License-Identifier: MIT
set -euo pipefail
sample=${1:?usage: dissect.sh DISSECT_SAMPLE}
command -v tshark >/dev/null || {
	echo "skipped: tshark is not installed"
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$sample" "$work/sample.pcap" "$work/want"
# the payload is not one of these protocols
read=(tshark -n -r "$work/sample.pcap" --disable-protocol rpcordma --disable-protocol infiniband.eoib
	-o udp.check_checksum:TRUE -o ip.check_checksum:TRUE)
fields=()
for f in bth.opcode bth.se bth.m bth.padcnt bth.tver bth.p_key bth.destqp bth.a bth.psn deth.q_key deth.srcqp reth.va reth.r_key \
	reth.dmalen atomiceth.swapdt atomiceth.cmpdt aeth.syndrome aeth.msn atomicacketh.origremdt immdt ieth invariant.crc vendor; do
	fields+=(-e "infiniband.$f")
done
"${read[@]}" -T fields -E separator='|' -E occurrence=f "${fields[@]}" >"$work/got" 2>"$work/err" || {
	cat "$work/err" >&2
	exit 1
}
diff "$work/want" "$work/got"
"${read[@]}" -Y '_ws.expert || _ws.malformed' >"$work/complaints" 2>>"$work/err"
[ ! -s "$work/complaints" ] || {
	cat "$work/complaints" >&2
	exit 1
}
echo "ok $(wc -l <"$work/got") packets"

#!/bin/bash
# dissect.sh - tshark decodes every CM message as we wrote it, without complaints
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
read=(tshark -n -r "$work/sample.pcap" --disable-protocol infiniband.eoib -o udp.check_checksum:TRUE -o ip.check_checksum:TRUE)
# one line for each field of a packet, in the sample's format
fields=$(grep -o '^infiniband[^=]*' "$work/want" | sort -u)
"${read[@]}" -T fields -E separator='|' -E occurrence=f -e ${fields//$'\n'/ -e } 2>"$work/err" |
	awk -F'|' -v names="$fields" 'BEGIN { split(names, name, "\n") }
		{ print "packet " NR; for (i = 1; i <= NF; i++) if ($i != "") print name[i] "=" $i }' >"$work/got" || {
	cat "$work/err" >&2
	exit 1
}
in_order() {
	awk '/^packet/ { n = $2 } { print n, $0 }' "$1" | sort -V
}
diff <(in_order "$work/want") <(in_order "$work/got")
"${read[@]}" -Y '_ws.expert || _ws.malformed' >"$work/complaints" 2>>"$work/err"
[ ! -s "$work/complaints" ] || {
	cat "$work/complaints" >&2
	exit 1
}
"${read[@]}" -Y 'infiniband.mad' 2>>"$work/err" | grep -c 'CM: ' | sed 's/.*/ok & messages/'

#!/bin/bash
# capture.sh - captured packets: tshark decodes all of them, and an independent ICRC implementation agrees
# follows: IBA volume 1, annex A17 (RoCEv2)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
need tcpdump tshark
check "two hosts" hosts
flat
compile_verify || exit 1
check "the tool that reads captures builds" compile pcap pcap.c ../../unit/frame/reference.c

capture=(udp port 4791)
captured() { capturing "$work/$1.pcap" "${@:2}"; } # NAME COMMAND…

crcs() { "$work/pcap" "$work/$1.pcap"; }

# each packet is decoded as InfiniBand; the payload is not one of these protocols
dissected() {
	local read=(tshark -n -r "$work/$1.pcap" --disable-protocol rpcordma --disable-protocol infiniband.eoib --disable-heuristic eth_over_ib)
	"${read[@]}" -Y '_ws.expert || _ws.malformed || !infiniband' >"$work/complaints" 2>"$work/tshark.err" || { cat "$work/tshark.err"; return 1; }
	[ -s "$work/complaints" ] || return 0
	head -20 "$work/complaints"
	"${read[@]}" -Y '_ws.expert' -T fields -e infiniband.bth.opcode -e _ws.expert.message 2>/dev/null | sort | uniq -c | sort -rn | head
	return 1
}

# has NAME OPCODE…
has() {
	local o status=0
	for o in "${@:2}"; do "$work/pcap" "$work/$1.pcap" | grep -q "^$o " || { echo "no $o"; status=1; }; done
	return $status
}

rc="SEND_FIRST SEND_MIDDLE SEND_LAST SEND_LAST_IMM SEND_ONLY SEND_ONLY_IMM WRITE_FIRST WRITE_MIDDLE WRITE_LAST WRITE_LAST_IMM WRITE_ONLY
	WRITE_ONLY_IMM READ_REQUEST READ_RESPONSE_FIRST READ_RESPONSE_MIDDLE READ_RESPONSE_LAST READ_RESPONSE_ONLY ACK ATOMIC_ACK CMP_SWAP FETCH_ADD"
uc="SEND_FIRST SEND_MIDDLE SEND_LAST SEND_LAST_IMM SEND_ONLY SEND_ONLY_IMM WRITE_FIRST WRITE_MIDDLE WRITE_LAST WRITE_LAST_IMM WRITE_ONLY WRITE_ONLY_IMM"
ud="SEND_ONLY SEND_ONLY_IMM"
for f in IPv4 IPv6; do
	g=$V4
	[ $f = IPv4 ] || g=$V6
	for t in rc uc ud; do
		check "$t, $f: data right while captured" captured $t-$f crossing 500000 pair "$work/verify" -d $DEV -g $g -t $t -l 16384 -n 1000000
		check "$t, $f: every ICRC is right" crcs $t-$f
		check "$t, $f: every opcode occurs" has $t-$f $(for o in ${!t}; do echo ${t^^}_$o; done)
		check "$t, $f: tshark understands every packet" dissected $t-$f
	done
done
# XRC: tshark knows the opcodes, and shows the four bytes behind the BTH, which are the XRCETH of a request
need ib_write_bw
xrc="SEND_FIRST SEND_MIDDLE SEND_LAST WRITE_FIRST WRITE_MIDDLE WRITE_LAST READ_REQUEST READ_RESPONSE_FIRST READ_RESPONSE_MIDDLE READ_RESPONSE_LAST
	ACK ATOMIC_ACK FETCH_ADD"
xrc_programs() { # GID
	local p
	for p in "ib_send_bw -s 5000" "ib_read_bw -s 5000" "ib_atomic_bw" "ib_write_bw -s 5000"; do
		pair $p -F -u 18 -d $DEV -c XRC -x "$1" -n 20 || return 1
	done
}
# the SRQ number that the server of the last program printed, in each packet of its writes
names_srq() { # NAME
	local want got
	want=$(sed -n 's/.*local address.*SRQn 0x\([0-9a-f]*\).*/00\1/p' "$work/server.out")
	got=$(tshark -n -r "$work/$1.pcap" -Y 'infiniband.bth.opcode >= 166 && infiniband.bth.opcode <= 168' -T fields -E occurrence=f -e infiniband.vendor 2>/dev/null | sort -u)
	[ -n "$want" ] && [ "$got" = "$want" ] && return 0
	echo "XRCETH $got instead of $want"
	return 1
}
for f in IPv4 IPv6; do
	g=$V4
	[ $f = IPv4 ] || g=$V6
	check "xrc, $f: perftest while captured" captured xrc-$f xrc_programs $g
	check "xrc, $f: every ICRC is right" crcs xrc-$f
	check "xrc, $f: the opcodes of each operation occur" has xrc-$f $(for o in $xrc; do echo XRC_$o; done)
	check "xrc, $f: each packet of a write names the SRQ" names_srq xrc-$f
	check "xrc, $f: tshark understands every packet" dissected xrc-$f
done
check "rc, negative acknowledgements: data right while captured" captured rnr crossing 500000 pair "$work/verify" -d $DEV -g $V4 -r 2 -k send,send-imm,write-imm -l 16384 -n 500000
check "rc, negative acknowledgements: every ICRC is right" crcs rnr
check "rc, negative acknowledgements: tshark understands every packet" dissected rnr
finish

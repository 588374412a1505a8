#!/bin/bash
# iwarp_capture.sh - captured iWARP connections: tshark decodes MPA, DDP and RDMAP, and independent code agrees
# follows: RFC 5040, 5041, 5044, 6581, 7306
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/../../support/cm.sh"
need tcpdump tshark nc python3 tc rstream
export VERBENA_DEVICES=iwarp:net0
check "two hosts" hosts
flat
compile rdmap ../../interop/rdmap.c -lrdmacm -libverbs || exit 1
there=$V4_B

capture=(--immediate-mode tcp)
captured() { capturing "$work/$1.pcap" "${@:2}"; } # NAME COMMAND…

# the payload of FPDUs is not one of these protocols
read_pcap() { tshark -n -r "$work/$1.pcap" --disable-protocol rpcordma "${@:2}" 2>"$work/tshark.err"; }

# tshark 4.0 warns of RFC 6581's additions to MPA frames, misreads an untagged header in a Terminate message by 14
# bytes, and loses track after some thousand bytes of a stream with markers. At the end of the receiver's window the
# kernel splits data for one segment
dissected() { # NAME [FILTER]: all packets are MPA, or all that pass the filter
	read_pcap "$1" -Y '_ws.malformed || _ws.expert.severity == error' >"$work/complaints" || { cat "$work/tshark.err"; return 1; }
	read_pcap "$1" -Y 'tcp.len > 0 && !iwarp_mpa && !tcp.analysis.out_of_order && !tcp.analysis.retransmission'"${2:+ && !$2}" >>"$work/complaints"
	read_pcap "$1" -V -Y iwarp_mpa | grep 'Bad CRC' >>"$work/complaints"
	[ -s "$work/complaints" ] || return 0
	head -20 "$work/complaints"
	return 1
}
has() { # NAME OPCODE…: tshark's opcodes
	local o status=0
	read_pcap "$1" -Y iwarp_rdma.opcode -T fields -e iwarp_rdma.opcode | tr ',' '\n' | sort | uniq -c >"$work/opcodes"
	for o in "${@:2}"; do grep -q " 0x0$o\$" "$work/opcodes" || { echo "no RDMAP opcode $o"; status=1; }; done
	[ $status = 0 ] || cat "$work/opcodes"
	return $status
}
whole() { # NAME: hardly any FPDU is split
	local split all
	dissected "$1" tcp.segment_data || return 1
	split=$(read_pcap "$1" -Y 'tcp.segment_data && !iwarp_mpa' | wc -l) all=$(read_pcap "$1" -Y iwarp_mpa | wc -l)
	[ $((split * 20)) -le "$all" ] || { echo "$split of $all"; return 1; }
}
long_ones() { # NAME: FPDUs longer than TCP's segments
	[ "$(read_pcap "$1" -Y 'iwarp_mpa.ulpdulength > 1500' | wc -l)" -ge 10 ] || { echo "there are none"; return 1; }
}
good_crcs() { # NAME LEAST
	local n
	n=$(read_pcap "$1" -V -Y iwarp_mpa | grep -c 'Good CRC32')
	[ "$n" -ge "$2" ] || { echo "only $n CRCs were looked at"; return 1; }
}
walked() { # NAME WHAT…: the same with fpdus.py, with markers
	local w status=0
	python3 "$HERE/fpdus.py" "$work/$1.pcap" >"$work/walk" || return 1
	for w in "${@:2}"; do grep -q "^$w " "$work/walk" || { echo "no $w"; status=1; }; done
	[ $status = 0 ] || cat "$work/walk"
	return $status
}
revisions() { # NAME FRAME REVISION…: in this order
	[ "$(read_pcap "$1" -Y "iwarp_mpa.$2" -T fields -e iwarp_mpa.rev | tr '\n' ' ')" = "${*:3} " ] && return 0
	read_pcap "$1"
	return 1
}

kinds=send,send-se,send-inv,send-se-inv,write,read,write-imm,cmp-swap,fetch-add
opcodes="0 1 2 3 4 5 6 7 8 9 a b"
walks="0 1 2 3 4 5 6 7 8 9 10 11 revision2"
talk() { both "$work/rdmap" -s $any -l 20000 -k $kinds,$1 -- "$work/rdmap" -c @ -l 20000 -k $kinds,$1; }
for f in IPv4 IPv6; do
	there=$V4_B any=0.0.0.0
	[ $f = IPv4 ] || there=$V6_B any=::
	check "$f: data right while captured" captured plain-$f talk bad-read
	check "$f: tshark understands every FPDU" dissected plain-$f tcp.segment_data
	check "$f: some are longer than a segment" long_ones plain-$f
	check "$f: every message occurs" has plain-$f $opcodes
	check "$f: every FPDU is right" walked plain-$f $walks
	export VERBENA_MPA=emss
	check "$f, each within a segment: data right while captured" captured emss-$f talk bad-read
	check "$f, each within a segment: tshark understands every FPDU" whole emss-$f
	check "$f, each within a segment: every message occurs" has emss-$f $opcodes
	check "$f, each within a segment: every FPDU is right" walked emss-$f $walks
	export VERBENA_MPA=crc,emss
	check "$f, CRC: data right while captured" captured crc-$f talk bad-send
	check "$f, CRC: tshark understands every FPDU" whole crc-$f
	check "$f, CRC: every message occurs" has crc-$f $opcodes
	check "$f, CRC: tshark finds the CRCs right" good_crcs crc-$f 500
	check "$f, CRC: every FPDU is right" walked crc-$f $walks crc
	export VERBENA_MPA=markers
	check "$f, markers: data right while captured" captured markers-$f talk bad-write
	check "$f, markers: every FPDU is right" walked markers-$f $walks markers
	export VERBENA_MPA=crc,markers
	check "$f, CRC and markers: data right while captured" captured both-$f talk bad-atomic
	check "$f, CRC and markers: every FPDU is right" walked both-$f $walks crc markers
	unset VERBENA_MPA
done

# The end of a stream in one segment with its last message: siw may handle the end first, and drop the message. b's
# program ends long before its end of the cable has received everything.
all_closed() { [ -z "$(ip netns exec $B ss -Htn state connected exclude time-wait)" ]; }
ends_behind_a_slow_cable() {
	local status
	ip netns exec $B tc qdisc add dev net0 root tbf rate 20mbit burst 5k latency 1s || return 1
	both rstream -b $V4_B -T v -S 16384 -C 5 -I 2 -- rstream -s @ -T v -S 16384 -C 5 -I 2
	status=$?
	wait_for 20 all_closed # deleting the queue discards packets that still wait for the cable
	ip netns exec $B tc qdisc del dev net0 root
	return $status
}
ends_apart() { # NAME
	[ "$(read_pcap "$1" -Y 'tcp.flags.fin == 1 && ip.src == '$V4_B | wc -l)" -ge 1 ] &&
		[ -z "$(read_pcap "$1" -Y 'tcp.flags.fin == 1 && tcp.len > 0')" ] && return 0
	read_pcap "$1" | tail -20
	return 1
}
there=$V4_B
if ip netns exec $B tc qdisc add dev lo root tbf rate 1gbit burst 1m latency 1s 2>/dev/null; then
	ip netns exec $B tc qdisc del dev lo root
	check "a program ends while its last messages are under way" captured ends ends_behind_a_slow_cable
	check "the end of a stream comes by itself, behind them" ends_apart ends
else
	skip "the end of a stream comes by itself" "this kernel has no tbf"
fi

# revision 1: a peer that uses it, and one that does not answer another revision
there=$V4_B
asked_by_1() {
	timeout $((LIMIT * SLOW)) "${on_b[@]}" "${run[@]}" "$work/rdmap" -s "$there" >"$work/server.out" 2>&1 &
	server=$!
	wait_for 20 listens 7471
	timeout 30 "${on_a[@]}" bash -c 'exec 3<>/dev/tcp/"$0"/7471 && printf "MPA ID Req Frame\0\1\0\0" >&3 && head -c 20 <&3' "$there" >"$work/reply"
	kill $server
	wait $server
	[ "$(head -c 16 "$work/reply")" = "MPA ID Rep Frame" ]
}
# A peer that ends the first connection, answers the second with revision 1, and leaves when data has arrived on that
# one
cat >"$work/old.py" <<'EOF2'
import socket, sys
listener = socket.create_server((sys.argv[1], 7471))
connection, _ = listener.accept()
connection.recv(1000)
connection.close()
connection, _ = listener.accept()
connection.recv(1000)
connection.sendall(b"MPA ID Rep Frame\0\1\0\0")
connection.recv(1000)
EOF2
asks_by_1() {
	timeout $((LIMIT * SLOW)) "${on_b[@]}" python3 "$work/old.py" "$there" &
	server=$!
	wait_for 20 listens 7471
	timeout $((LIMIT * SLOW)) "${on_a[@]}" "${run[@]}" "$work/rdmap" -c "$there" >"$work/client.out" 2>&1
	kill $server 2>/dev/null
	wait $server
	return 0
}
check "revision 1 is answered" captured asked asked_by_1
check "revision 1 is answered by revision 1" revisions asked rep 1
check "who does not answer revision 2 is asked by revision 1" captured asks asks_by_1
check "first 2, then 1" revisions asks req 2 1
check "a stream of revision 1 is one" has asks 3
finish

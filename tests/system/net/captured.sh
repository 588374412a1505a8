#!/bin/bash
# captured.sh - verbena run --capture on two hosts: the same packets as tcpdump sees on the cable
# follows: verbena-capture(1); IBA volume 1, annex A17 (RoCEv2)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
need tcpdump tshark python3
sanitized && { skip "captured" "the launcher cannot preload the sanitizer into the collector's child"; exit 0; }
check "two hosts" hosts
flat

# each side's file is beside its runtime directory
cat >"$work/launcher" <<EOF
#!/bin/sh
exec "$VERBENA" run --capture "\$VERBENA_RUNTIME.pcapng" "\$@"
EOF
chmod 755 "$work/launcher"
run=("$work/launcher")
capture=(udp port 4791)

# An ICRC covers all of a packet, so the sorted ICRCs are the same if the packets are
packets() { tshark -n -r "$1" -Y infiniband -T fields -e infiniband.bth.opcode -e infiniband.bth.psn -e infiniband.invariant.crc 2>/dev/null | sort; }
same() { # SIDE
	packets "$work/wire.pcap" >"$work/on.wire"
	packets "$work/$1.pcapng" >"$work/on.$1"
	[ -s "$work/on.wire" ] && cmp -s "$work/on.wire" "$work/on.$1" && return 0
	wc -l "$work"/on.*
	diff "$work/on.wire" "$work/on.$1" | head -20
	return 1
}
right() { # SIDE
	python3 "$ROOT/tests/support/frames.py" "$work/$1.pcapng" >"$work/frames" 2>&1 && grep -q "^interface roce_net0" "$work/frames" &&
		grep -q "^dropped 0" "$work/frames" && return 0
	cat "$work/frames"
	return 1
}
for f in IPv4 IPv6; do
	g=$V4
	[ $f = IPv4 ] || g=$V6
	check "$f: ibv_rc_pingpong between two hosts" capturing "$work/wire.pcap" pair ibv_rc_pingpong -d $DEV -g $g -n 100 -s 9000 -m 1024
	for side in a b; do
		check "$f: host $side's file has the packets of the cable" same $side
		check "$f: host $side's file is right" right $side
	done
	check "$f: ib_read_bw between two hosts" capturing "$work/wire.pcap" pair ib_read_bw -d $DEV -x $g -n 50 -s 20000 -F
	for side in a b; do
		check "$f: host $side's file has the packets of the cable, of reads too" same $side
		check "$f: host $side's file of reads is right" right $side
	done
done
finish

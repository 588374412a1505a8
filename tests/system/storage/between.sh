#!/bin/bash
# between.sh - nvme+auto:// on one host and between two: RoCE, iWARP, and TCP if RDMA is made to fail
# follows: verbena_nvme.h, nft(8)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../net/lib.sh"
source "$(dirname "$0")/medium.sh"
TARGET=$BUILD/storage/verbena-target CLIENT=$BUILD/tests/system/storage/storage_client_peer
[ -x "$TARGET" ] && [ -x "$CLIENT" ] || { skip between "verbena-target is not built"; exit 0; }
NQN=nqn.2026-01.test:between
MB=8 # the data read at the end crosses twice
DISK=$((MB << 20))
target=
check "two hosts" eval 'hosts && medium_joins $A $B && medium memory ${MB}M'

# --- target on b, client on a ---
target_speaks() { grep -qs ^nvme "$work/target.out" || gone "$target"; }
serve() { # ADDRESS ARGS…
	rm -f "$work/target.out"
	timeout -k 30 $((300 * SLOW)) "${on_b[@]}" "${run[@]}" "$TARGET" --export "$medium" --listen "$1" --port 4420 --nqn $NQN "${@:2}" \
		>"$work/target.out" 2>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs ^nvme "$work/target.out"
}
ends() {
	local status
	kill "$target"
	wait "$target"
	status=$?
	[ $status = 0 ] && ! grep Sanitizer "$work/target.err" && return 0
	echo "the target ended with $status"
	cat "$work/target.err"
	return 1
}
client() { timeout -k 2 $((150 * SLOW)) "${on_a[@]}" "${run[@]}" "$CLIENT" "$@"; } # URL TRANSPORT…
url() { case $2 in *:*) echo "nvme+$1://[$2]/$NQN" ;; *) echo "nvme+$1://$2/$NQN" ;; esac; } # SCHEME ADDRESS

# goes BY SCHEME ADDRESS TRANSPORT ARGS…: with a target that is started with ARGS
goes() {
	local status=0
	serve "$3" "${@:5}" || { cat "$work/target.err"; return 1; }
	"$1" client "$(url "$2" "$3")" "$4" || status=1
	ends && return $status
}

# --- checks of the path ---
datagrams() { # NAMESPACE: UDP datagrams sent
	ip netns exec "$1" cat /proc/net/snmp /proc/net/snmp6 | awk '/^Udp:/ { n = $5 } /^Udp6OutDatagrams/ { m = $2 } END { print n + m }'
}
segments() { ip netns exec $A cat /proc/net/snmp | awk '/^Tcp:/ { n = $12 } END { print n }'; } # TCP, both families
crosses() { crossing $((2 * DISK)) "$@"; }
by_udp() { # few TCP segments: only the discovery log
	local before=$(segments)
	crosses "$@" || return 1
	[ $(($(segments) - before)) -lt 200 ] && return 0
	echo "there were $(($(segments) - before)) TCP segments"
	return 1
}
by_tcp() { # a query for a neighbour takes a datagram or two
	local before=$(($(datagrams $A) + $(datagrams $B)))
	crosses "$@" || return 1
	[ $(($(datagrams $A) + $(datagrams $B) - before)) -lt 40 ] && return 0
	echo "there were $(($(datagrams $A) + $(datagrams $B) - before)) UDP datagrams"
	return 1
}
stays() { # nothing crosses the cable
	local before=$(came $A)
	"$@" && [ $(($(came $A) - before)) -lt 5000 ] && return 0
	echo "$(($(came $A) - before)) bytes came from the other host"
	return 1
}

# --- RDMA if both ends support it ---
check "auto takes RDMA, RoCE, IPv4" goes by_udp auto $V4_B rdma --transport auto
check "auto takes RDMA, RoCE, IPv6" goes by_udp auto $V6_B rdma --transport auto
export VERBENA_DEVICES=iwarp:net0
check "iWARP by its name, IPv4" goes by_tcp rdma $V4_B rdma --transport rdma
check "iWARP by its name, IPv6" goes by_tcp rdma $V6_B rdma --transport rdma
check "auto takes RDMA, iWARP, at a port that the log names" goes by_tcp auto $V4_B rdma --transport auto
VERBENA_MPA=crc,markers check "auto takes RDMA, iWARP with CRC and markers" goes by_tcp auto $V4_B rdma --transport auto
unset VERBENA_DEVICES

# --- TCP otherwise ---
none=(env VERBENA_DEVICES=none)
with_none() { local on_a=("${on_a[@]}" "${none[@]}"); goes "$@"; }
check "auto takes TCP, the client without an adapter" with_none by_tcp auto $V4_B tcp --transport auto
without_at_target() { local on_b=("${on_b[@]}" "${none[@]}"); goes "$@"; }
check "auto takes TCP, the target without an adapter" without_at_target crosses auto $V4_B tcp --transport auto
another() { local on_b=("${on_b[@]}" env "VERBENA_DEVICES=$1"); goes "${@:2}"; } # kind of adapter at the target
check "auto takes TCP, RoCE here and iWARP there" another iwarp:net0 crosses auto $V4_B tcp --transport auto
VERBENA_DEVICES=iwarp:net0 check "auto takes TCP, iWARP here and RoCE there" another roce:net0 by_tcp auto $V4_B tcp --transport auto
check "auto takes TCP, the target not asked for RDMA" goes crosses auto $V4_B tcp --transport tcp
VERBENA_DEVICES=iwarp:net0 check "auto takes TCP, the target not asked for iWARP" goes by_tcp auto $V4_B tcp --transport tcp

# --- both kinds ---
export VERBENA_DEVICES=roce:net0,iwarp:net0
check "auto takes RoCE where both ends have both kinds, IPv4" goes by_udp auto $V4_B rdma --transport auto
check "auto takes RoCE where both ends have both kinds, IPv6" goes by_udp auto $V6_B rdma --transport auto
check "auto takes iWARP where the target has no other" another iwarp:net0 by_tcp auto $V4_B rdma --transport auto
check "auto takes RoCE where the target has no other" another roce:net0 by_udp auto $V4_B rdma --transport auto
check "RDMA by name takes iWARP where the target has no other" another iwarp:net0 by_tcp rdma $V4_B rdma --transport rdma
check "auto takes TCP where both kinds are here and none there" without_at_target by_tcp auto $V4_B tcp --transport auto
unset VERBENA_DEVICES

nft() { ip netns exec $B nft "$@"; }
close_port() { # RULE: packets to b to drop, or to treat as VERDICT says
	nft add table inet closed && nft add chain inet closed in '{ type filter hook input priority 0; }' && nft add rule inet closed in iifname net0 "$@" ${VERDICT:-drop}
}
open_port() { nft delete table inet closed; }
closed() { # RULE -- COMMAND…
	local rule=() status
	while [ "$1" != -- ]; do rule+=("$1"); shift; done
	shift
	close_port "${rule[@]}" || return 1
	"$@"
	status=$?
	open_port
	return $status
}
# RDMA fails after the start, and TCP takes over
moves() { # RULE…
	local c status=0
	rm -f "$work/client.out"
	serve $V4_B --transport auto || { cat "$work/target.err"; return 1; }
	client "$(url auto $V4_B)" rdma tcp >"$work/client.out" 2>&1 &
	c=$!
	wait_for 20 grep -qs 'now by rdma' "$work/client.out" && close_port "$@" || status=1
	wait $c || { cat "$work/client.out"; status=1; }
	open_port
	ends && return $status
}
# … and RDMA again, once it gets through, beside the TCP connection and without a repeated request
moves_back() {
	local c status=0
	rm -f "$work/client.out"
	serve $V4_B --transport auto || { cat "$work/target.err"; return 1; }
	client "$(url auto $V4_B)" rdma tcp rdma >"$work/client.out" 2>&1 &
	c=$!
	wait_for 20 grep -qs 'now by rdma' "$work/client.out" && close_port udp dport 4791 || status=1
	wait_for 120 grep -qs 'now by tcp' "$work/client.out" && open_port || status=1
	wait $c || status=1
	grep -q ' 1 reconnects, 1 returns$' "$work/client.out" || status=1
	[ $status = 0 ] || cat "$work/client.out"
	open_port 2>/dev/null
	ends && return $status
}
# From iWARP to RoCE, when UDP gets through again
returns_to_roce() {
	local c status=0
	rm -f "$work/client.out"
	serve $V4_B --transport auto || { cat "$work/target.err"; return 1; }
	close_port udp dport 4791
	client "$(url auto $V4_B)" iWARP RoCE >"$work/client.out" 2>&1 &
	c=$!
	says 'now by iWARP: ' && open_port || status=1
	wait $c || status=1
	grep -q ' 0 reconnects, 1 returns$' "$work/client.out" || status=1
	[ $status = 0 ] || cat "$work/client.out"
	open_port 2>/dev/null
	ends && return $status
}
# Both ends have both kinds, and the ways are closed and opened under load: each time another is taken, and both ends say which and why
way_is() { # WAY WHY: in the target's status, of its only host. The controller of a way that was cut may be there for a while
	"${on_b[@]}" timeout -k 2 20 "$TARGET" status >"$work/status" && python3 - "$work/status" $NQN "$@" <<-'END'
		import json, sys
		c = [(c["way"], c["why"]) for s in json.load(open(sys.argv[1]))["subsystems"] if s["nqn"] == sys.argv[2] for c in s["controllers"]]
		print(c)
		sys.exit(len(c) != 1 or c[0][0] != sys.argv[3] or sys.argv[4] not in c[0][1])
	END
}
says() { wait_for 60 said_way "$1" || { echo "the host never says $1"; return 1; }; } # PATTERN
said_way() { grep -qs "$1" "$work/client.out" || gone "$c"; }
all_ways() {
	local c status=0
	rm -f "$work/client.out"
	serve $V4_B --transport auto || { cat "$work/target.err"; return 1; }
	PATIENT_PEER=1 client "$(url auto $V4_B)" RoCE TCP iWARP TCP iWARP RoCE >"$work/client.out" 2>&1 &
	c=$!
	says 'now by RoCE: ' && wait_for 30 way_is "RoCE by Verbena" "has chosen RDMA" && close_port meta l4proto '{ udp, tcp }' th dport != 4420 &&
		says 'now by TCP: ' && wait_for 30 way_is TCP "RDMA did not work" && nft flush chain inet closed in && nft add rule inet closed in iifname net0 udp dport 4791 drop &&
		says 'now by iWARP: ' && wait_for 30 way_is "iWARP by Verbena" "has chosen RDMA" && nft add rule inet closed in iifname net0 tcp dport != 4420 drop &&
		wait_for 60 eval '[ $(grep -c "now by TCP" "$work/client.out") = 2 ]' && wait_for 30 way_is TCP "RDMA did not work" && open_port || status=1
	wait $c || status=1
	cat "$work/client.out"
	open_port 2>/dev/null
	ends && return $status
}
if close_port udp dport 4791 2>"$work/said"; then
	open_port
	check "auto takes TCP, UDP port 4791 closed" closed udp dport 4791 -- goes crosses auto $V4_B tcp --transport auto
	check "it moves to TCP when UDP port 4791 is closed under it" crosses moves udp dport 4791
	check "it moves back to RDMA when that gets through again" crosses moves_back
	check "auto takes RDMA, TCP port 4420 closed" closed tcp dport 4420 -- goes by_udp auto $V4_B rdma --transport auto
	export VERBENA_DEVICES=iwarp:net0
	check "auto takes TCP, iWARP's port closed" closed tcp dport != 4420 -- goes by_tcp auto $V4_B tcp --transport auto
	check "it moves to TCP when iWARP's port is closed under it" by_tcp moves tcp dport != 4420
	export VERBENA_DEVICES=roce:net0,iwarp:net0
	check "auto takes iWARP where both ends have both, UDP port 4791 closed" closed udp dport 4791 -- goes by_tcp auto $V4_B rdma --transport auto
	check "it moves back from iWARP to RoCE when that gets through again" returns_to_roce
	! on_rbd || check "RoCE, TCP, iWARP, TCP, iWARP, RoCE: ways are closed and opened under load, no request fails, the status says which and why" all_ways
	check "auto takes TCP where both ends have both, and neither gets through" closed meta l4proto { udp, tcp } th dport != 4420 -- goes by_tcp auto $V4_B tcp --transport auto
	unset VERBENA_DEVICES
else
	skip "ports that are closed" "nft: $(tail -1 "$work/said")"
fi

# --- one host ---
on_b=("${on_a[@]}")
check "auto takes RDMA, one host" goes stays auto $V4_A rdma --transport auto
VERBENA_DEVICES=iwarp:net0 check "auto takes RDMA, one host, iWARP" goes stays auto $V4_A rdma --transport auto
VERBENA_WIRE=always check "auto takes RDMA, one host by the wire" goes stays auto $V4_A rdma --transport auto
check "auto takes TCP, one host, the client without an adapter" with_none stays auto $V4_A tcp --transport auto
finish

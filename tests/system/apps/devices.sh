#!/bin/bash
# devices.sh - the adapters as rdma-core's and infiniband-diags' tools show them
# follows: ibv_devices(1), ibv_devinfo(1), ibv_asyncwatch(1), ibstat(8), verbena-devices(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ibv_devinfo ip

shows() { # PATTERN COMMAND…: its output has a line of this pattern
	local pattern=$1
	shift
	timeout $((60 * SLOW)) "${run[@]}" "$@" >"$work/out" 2>&1 </dev/null || { cat "$work/out"; return 1; }
	grep -Eq -- "$pattern" "$work/out" || { echo "no line like '$pattern' in:"; cat "$work/out"; return 1; }
}

check "ibv_devices lists roce_lo with its GUID" shows '^\s+roce_lo\s+[0-9a-f]{16}$' ibv_devices
for line in 'hca_id:.roce_lo' 'transport:.*InfiniBand \(0\)' 'state:.*PORT_ACTIVE \(4\)' 'link_layer:.*Ethernet' 'phys_port_cnt:.*1$' \
	'GID\[ *0\]:.*fe80:.*RoCE v2' 'GID\[ *1\]:.*::ffff:127.0.0.1, RoCE v2' 'max_mtu:.*4096 \(5\)' 'active_mtu:.*4096 \(5\)' \
	'max_qp:.*[1-9][0-9]+' 'max_srq:.*[1-9]' 'max_mr_size:.*0x[0-9a-f]+' 'atomic_cap:.*ATOMIC_(HCA|GLOB)' 'pkey_tbl_len:.*[1-9]' \
	'max_sge:.*[1-9]' 'phys_state:.*LINK_UP' 'ODP_SUPPORT_IMPLICIT' 'max_wq_type_rq:.*[1-9]' 'max_num_tags:.*[1-9]' 'max_tso:.*262144$' 'maximum available device memory:.*[1-9]'; do
	check "ibv_devinfo -v: $line" shows "$line" ibv_devinfo -d roce_lo -v
done
# raw packets have work queues, segmentation and rate limits, but no other offloads that are listed by type
says_nothing_false() {
	"${run[@]}" ibv_devinfo -d roce_lo -v >"$work/out" || return 1
	! grep -E 'MEM_WINDOW_TYPE_2A|UD_TSO' "$work/out" &&
		sed -n '/rss_caps:/,/max_wq_type_rq:/p' "$work/out" | grep -q RAW_PACKET &&
		sed -n '/tso_caps:/,/rss_caps:/p' "$work/out" | grep -q RAW_PACKET &&
		sed -n '/packet_pacing_caps:/,/tag matching/p' "$work/out" | grep -q RAW_PACKET && [ "$(grep -c RAW_PACKET "$work/out")" = 3 ]
}
check "ibv_devinfo -v announces nothing that is not there yet" says_nothing_false
check "ibv_devinfo -l counts them" shows '[1-9][0-9]* HCAs? found' ibv_devinfo -l
fails_for_unknown() { "${run[@]}" ibv_devinfo -d roce_none 2>&1 | grep "'roce_none' wasn't found"; }
check "ibv_devinfo -d fails for an adapter that is not there" fails_for_unknown

devices_table() { "$VERBENA" devices >"$work/out" && grep -Eq '^roce_lo +lo +ACTIVE ' "$work/out"; }
devices_json() { "$VERBENA" devices --json | /usr/bin/python3 -c 'import json, sys; assert "roce_lo" in [d["device"] for d in json.load(sys.stdin)]'; }
check "verbena devices has a row for roce_lo" devices_table
[ -x /usr/bin/python3 ] && check "verbena devices --json is JSON" devices_json

check "verbena run --device is VERBENA_DEVICES" shows '^ +iwarp_lo' env VERBENA_DEVICES=roce:lo "$VERBENA" run --no-shim --device iwarp:lo ibv_devices
check "verbena run --wire is VERBENA_WIRE" shows '^never$' "$VERBENA" run --no-shim --wire=never printenv VERBENA_WIRE
# --- what a program says when it ends ---
counted='^verbena: ibv_rc_pingpong \([0-9]+\): roce_lo: sent 500000 bytes in 500 packets, received 500000 bytes in 500$'
says_at_end() { VERBENA_STATS=1 pair ibv_rc_pingpong -d roce_lo -g 1 -s 1000 -n 500 && grep -Eq "$counted" "$work/server.out" && grep -Eq "$counted" "$work/client.out" || { said_by_both; return 1; }; }
says_nothing() { ! VERBENA_STATS=1 "${run[@]}" ibv_devinfo 2>&1 | grep '^verbena: '; }
check "VERBENA_STATS=1: both ends say what they have sent and received" says_at_end
check "VERBENA_STATS=1: a program that has sent nothing says nothing" says_nothing
check "verbena run --stats is VERBENA_STATS=1" shows '^1$' "$VERBENA" run --no-shim --stats printenv VERBENA_STATS
refused() { "$VERBENA" run $1 2>&1 | grep -q -- "$2"; }
check "verbena run --wire without a value is refused" refused --wire "--wire needs a value"
check "verbena run --devices is no option" refused "--devices x true" "unknown option '--devices'"

# the first address of lo, from the library and from the tree for /sys
lids() { (export VERBENA_LIDS=$1; shows "port_lid:.*$2\$" ibv_devinfo -d roce_lo && { sanitized || shows "^0x$2\$" cat /sys/class/infiniband/roce_lo/ports/1/lid; }); }
check "VERBENA_LIDS gives a LID" lids 1 1
check "… and none if it is 0" lids 0 0

if sanitized; then
	skip "ibstat, ibstatus" "they need the path shim, which a sanitized build does not preload"
elif command -v ibstat >/dev/null; then
	check "ibstat shows an active port" shows 'State: Active' ibstat roce_lo
	check "ibstat -l lists roce_lo" shows '^roce_lo$' ibstat -l
	check "ibstatus shows the link layer" shows 'link_layer:.*Ethernet' ibstatus roce_lo
else
	skip "ibstat, ibstatus" "infiniband-diags is not installed"
fi

# --- changes while a program runs ---
carries() { ip -o link show v0 | grep -q LOWER_UP; } # /sys shows the network in which it was mounted
watch_changes() {
	ip link set lo up
	ip link add v0 type veth peer name v1
	ip link set v0 up; ip link set v1 up
	trap 'kill $(jobs -p) 2>/dev/null' EXIT
	wait_for 20 carries
	timeout $((120 * SLOW)) env VERBENA_LIDS=1 "${run[@]}" stdbuf -oL ibv_asyncwatch -d roce_v0 >"$work/watch" 2>&1 &
	local watch=$!
	wait_for 20 grep -q 'async event FD' "$work/watch" || { cat "$work/watch"; return 1; }
	ip addr add 10.9.8.7/24 dev v0
	wait_for 20 grep -q '(18), port 1$' "$work/watch" || { echo "no GID event:"; cat "$work/watch"; return 1; }
	# IBV_EVENT_LID_CHANGE: with VERBENA_LIDS the first address is the LID
	wait_for 20 grep -q '(11), port 1$' "$work/watch" || { echo "no LID event:"; cat "$work/watch"; return 1; }
	ip link set v1 down
	wait_for 20 grep -q '(10), port 1$' "$work/watch" || { echo "no port error event:"; cat "$work/watch"; return 1; }
	ip link set v1 up
	wait_for 20 grep -q '(9), port 1$' "$work/watch" || { echo "no port active event:"; cat "$work/watch"; return 1; }
	ip link del v0
	wait_for 20 grep -q '(8)' "$work/watch" || { echo "no fatal event when the interface went:"; cat "$work/watch"; return 1; }
	kill $watch
	wait $watch 2>/dev/null
	return 0
}
if unshare -n ip link add v0 type veth peer name v1 2>/dev/null; then
	export -f watch_changes wait_for pause carries
	export work SLOW
	declare -p run >"$work/state"
	check "ibv_asyncwatch sees addresses, links and interfaces come and go" unshare -n bash -uc 'source "$work/state"; watch_changes'
else
	skip "ibv_asyncwatch" "no right to make network namespaces with veth"
fi
finish

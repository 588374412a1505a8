#!/bin/bash
# tools.sh - the rest of Debian's diagnostic tools on a simulated fabric, with all that they can ask: smpquery, perfquery,
#   ibportstate, the tools that compare and verify, osmtest, ibdiagnet
# follows: the tools' manual pages; IBA volume 1, 14.2.5 and 16.1
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
PATH=$PATH:/usr/sbin
start_fabric --generate fat-tree:2,2,2
sm host1 &
check "opensm brings up the fabric" wait_for 30 all_active
says() { # PATTERN PROGRAM ARGS…: it ends well, and its output has it
	on host1 "${@:2}" >"$work/tool" 2>&1 || { cat "$work/tool"; return 1; }
	grep -qE -- "$1" "$work/tool" || { cat "$work/tool"; return 1; }
}
refused() { # PATTERN PROGRAM ARGS…: it fails, and says so; nothing is waited for
	! on host1 "${@:2}" >"$work/tool" 2>&1 && grep -qE -- "$1" "$work/tool" && ! grep -q 'timed out' "$work/tool" || { cat "$work/tool"; return 1; }
}
host=$(($(lid_of host3))) leaf=$(ctl show leaf4 | sed -n '1s/.* lid //p') guid=0x005e4b0000000004

# --- smpquery ---
while read -r pattern words; do
	# shellcheck disable=SC2086 # words
	check "smpquery $words" says "${pattern//_/ }" smpquery $words
done <<-END
	NodeType:.*Channel_Adapter nodeinfo $host
	NodeType:.*Switch nodeinfo $leaf
	NodeType:.*Switch -D nodeinfo 0,1
	NodeType:.*Channel_Adapter -G nodeinfo $(port_guid host3)
	host3_ib0 nodedesc $host
	IsSLMappingSupported portinfo $leaf 0
	LinkState:.*Active portinfo $leaf 1
	LinearFdbCap:.*49152 switchinfo $leaf
	^64_pkeys pkeys $host 1
	^32_pkeys pkeys $leaf 1
	in__4,_out__1:_._0 sl2vl $leaf 1
	^VL_ vlarb $leaf 1
	^8_guids guidinfo $host
	^8_guids guidinfo $leaf
END
check "a host is no switch" refused 'switch info query failed' smpquery switchinfo "$host"
check "no port has PortInfoExtended" refused 'not supported' smpquery PortInfoExtended "$host" 1
check "a vendor's attribute is refused" refused 'query failed' smpquery mepi "$host" 1
check "smpdump says with which status" says 'SMP status: 0xc' smpdump "$host" 0xff90 1

# --- perfquery: the counters that the agents have, and a refusal of all others ---
check "perfquery sums the ports of a switch" says 'port 255' perfquery -a "$leaf"
check "perfquery -l reads one port after the other" says 'port 3 ' perfquery -l "$leaf" 1-4
check "perfquery -x -a sums the extended ones" says 'PortUnicastXmitPkts' perfquery -x -a "$leaf"
is_reset() { on host1 perfquery -R "$leaf" 1 && on host1 perfquery "$leaf" 1 | grep -qE 'LinkDownedCounter:\.+0'; }
ctl counters leaf4 1 link_downed=9 >/dev/null
check "perfquery -r reads and resets" says 'LinkDownedCounter:\.+9' perfquery -r "$leaf" 1
check "... to zero" says 'LinkDownedCounter:\.+0' perfquery "$leaf" 1
ctl counters leaf4 1 link_downed=9 >/dev/null
check "perfquery -R resets" is_reset
for option in xmtsl rcvsl xmtdisc rcverr extended_speeds oprcvcounters flowctlcounters vloppackets vlopdata vlxmitflowctlerrors vlxmitcounters \
	swportvlcong rcvcc slrcvfecn slrcvbecn xmitcc vlxmittimecc smplctl; do
	check "perfquery --$option is refused" refused 'cannot query|sampctlquery' perfquery --$option "$host" 1
done

# --- ibportstate ---
state() { says '.' ibportstate "$leaf" 1 "$@"; }
has() { says "$1" ibportstate "$leaf" 1 query; }
speed_is() { has "LinkSpeedActive:\.+$1" && all_active; }
width_is() { has "LinkWidthActive:\.+$1" && all_active; }
changes() { # OPERATION VALUE CHECK ARGS…: it is in force when the link has trained again
	state "$1" "$2" && state reset && wait_for 20 "${@:3}"
}
check "ibportstate shows a port and its peer" says 'Peer PortInfo' ibportstate "$leaf" 1 query
check "ibportstate slows a link down" changes speed 1 speed_is 2.5
check "... and lets it run again" changes speed 7 speed_is 10.0
check "ibportstate narrows a link" changes width 1 width_is 1X
check "... and widens it again" changes width 255 width_is 4X
taken_down() { state down && wait_for 20 all_active; }
check "a link that was taken down trains again" taken_down
check "an Active port does not become Armed" refused 'set portinfo failed|bad|fail' ibportstate "$leaf" 1 arm
reset_host() { says '.' ibportstate "$host" 1 reset && wait_for 20 all_active; }
check "ibportstate resets a host's port" reset_host
local_port() { on host3 ibportstate -D 0 1 "$1" >"$work/tool" 2>&1; }
host_off_and_on() { # it cannot answer, but its own host reaches it
	on host1 ibportstate "$host" 1 disable >"$work/tool" 2>&1
	ctl show host3 | grep -q ' Down ' || return 1
	local_port enable
	wait_for 20 all_active
}
check "a host's port that was disabled from afar is enabled by its host" host_off_and_on

# --- tools that compare and verify ---
finds_no_doubles() { on host1 ibidsverify -R >"$work/tool" 2>&1 && [ ! -s "$work/tool" ]; }
check "ibidsverify finds no LID or GUID twice" finds_no_doubles
balanced() { # a spine's port to a leaf leads to its two hosts
	on host1 dump_lfts >"$work/lfts" && on host1 ibnetdiscover --cache "$work/cache" >/dev/null &&
		on host1 check_lft_balance -v -l "$work/lfts" -i "$work/cache" >"$work/tool" 2>&1 && grep -q '^Port 002: 2$' "$work/tool"
}
check "check_lft_balance reads what dump_lfts and ibnetdiscover have written" balanced
users_of_port() { says 'host3 ib0' ibfindnodesusing -R $guid 1; }
check "ibfindnodesusing finds the host behind a port" users_of_port
no_group() { on host1 dump_mfts >"$work/tool" 2>&1 && [ "$(grep -c '^0 valid mlids' "$work/tool")" = 4 ]; }
check "dump_mfts shows that there are no groups" no_group
ctl link leaf4 1 down
difference() { says '^< +.*"host3 ib0"' iblinkinfo --diff "$work/cache"; }
check "iblinkinfo --diff shows the link that is missing" difference
node_gone() { says '^< caguid=0x5e4b010000000c' ibnetdiscover --diff "$work/cache"; }
check "ibnetdiscover --diff shows the node" node_gone
ctl link leaf4 1 up
check "and they are there again" wait_for 20 all_active
on host1 ibqueryerrors -k >/dev/null
check "ibqueryerrors asks the switches alone" says '^## Summary: 4 nodes checked' ibqueryerrors --switch
check "ibqueryerrors shows counters" says 'PortUnicastXmitPkts == [1-9]' ibqueryerrors --counters
no_vendor() { ! on host1 vendstat -N "$host" >"$work/tool" 2>&1 && grep -q 'classportinfo query' "$work/tool"; } # vendors' classes are silent
check "vendstat finds no vendor's agent" no_vendor
printed() { ctl print >"$work/printed" && "$FABRIC" "$work/printed" --print | diff - <(sed 's/ lid [0-9]*/ lid 0/' "$work/printed"); }
check "the topology that ctl prints is read again" printed

# --- threads and children ---
gcc_files() { "${CC:-gcc}" -std=gnu17 -O2 -w -pthread -o "$work/files" "$ROOT/tests/system/fabric/files.c" -libumad; }
check "a program with threads and children is built" gcc_files
"${run[@]}" timeout -k 2 $((60 * SLOW)) "$work/files" "$host" 2>"$work/tool" | sed 'y/_/ /'
[ "${PIPESTATUS[0]}" = 0 ] || { echo "not ok threads, or children"; sed 's/^/	/' "$work/tool"; failed=$((failed + 1)); }

# --- osmtest, the test program of opensm ---
osmtest_passes() { # FLOW
	(cd "$work" && VERBENA_NODE=host2 OSM_TMP_DIR=$work timeout -k 2 $((60 * SLOW)) "${run[@]}" osmtest -f "$1" -i "$work/inventory" -l "$work/osmtest.log") >"$work/tool" 2>&1 &&
		grep -q 'PASS$' "$work/tool" || { tail -5 "$work/tool"; grep ERR "$work/osmtest.log" | tail; return 1; }
}
if command -v osmtest >/dev/null; then
	for flow in c:inventory v:validation e:events t:traps m:multicast; do
		check "osmtest: ${flow#*:}" osmtest_passes "${flow%:*}"
	done
else
	skip osmtest "osmtest is not installed"
fi

# --- ibdiagnet. Its option -r is left out: ibdmchk has a defect at its end, with or without a fabric ---
diagnosed() { # but for the counters of the cut cables
	(cd "$work" && says 'Done. Run time' ibdiagnet -o "$work") && ! grep -E -- '^-E-.*(GUID|LID|link|pkey)' "$work/tool" &&
		[ "$(grep -E '(GUIDs/LIDs|Active|Partitions|Subnets) Check  +0 ' "$work/tool" | wc -l)" = 4 ] || { cat "$work/tool"; return 1; }
}
if command -v ibdiagnet >/dev/null; then
	check "ibdiagnet finds no errors" diagnosed
else
	skip ibdiagnet "ibutils is not installed"
fi
stop_fabric
finish

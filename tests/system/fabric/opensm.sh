#!/bin/bash
# opensm.sh - Debian's opensm and diagnostic tools on simulated fabrics: bring-up, routing, takeover, partitions, accidents
# follows: opensm(8), ibnetdiscover(8), saquery(8), man/verbena-fabric.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"

states_are() { [ "$(ctl states)" = "$1" ] || { ctl states; return 1; }; }

# brings_up SHAPE NODES PORTS ENGINE ARGS…: all ports are Active, and the engine's own tables are set
brings_up() {
	local shape=$1 nodes=$2 ports=$3 engine=$4 rc=0
	shift 4
	start_fabric --generate "$shape" || return 1
	rm -rf "$work/sm-host1"
	sm host1 -o -R "$engine" "$@"
	log_has host1 "$engine tables configured on all switches" || { tail -20 "$work/sm-host1/log"; rc=1; }
	states_are "nodes $nodes ports $ports down 0 init 0 armed 0 active $ports" || rc=1
	stop_fabric && return $rc
}
check "opensm brings up one switch with two hosts" brings_up switch:2 3 4 minhop
for engine in updn ftree dfsssp; do
	check "opensm brings up a fat tree with 32 hosts by $engine" brings_up fat-tree:8,4,4 44 128 $engine
done
for engine in dor lash; do
	check "opensm brings up a torus by $engine" brings_up torus:4,4,2 48 128 $engine
done
for engine in minhop dfsssp; do
	check "opensm brings up a dragonfly by $engine" brings_up dragonfly:4,4,2 48 124 $engine
done
cat >"$work/torus.conf" <<-END
	torus 4 4 1
	xp_link 0x005e4b0000000001 0x005e4b0000000002
	xm_link 0x005e4b0000000001 0x005e4b0000000004
	yp_link 0x005e4b0000000001 0x005e4b0000000005
	ym_link 0x005e4b0000000001 0x005e4b000000000d
END
check "opensm brings up a torus by torus-2QoS, with quality of service" brings_up torus:4,4,2 48 128 torus-2QoS -Q --torus_config "$work/torus.conf"

check "opensm brings up 2,090 nodes" brings_up fat-tree:56,18,36 2090 6048 minhop

# --- the tools, beside ibsim's ---
topology=$work/topology
"$FABRIC" --generate fat-tree:4,2,3 --print >"$topology"
# What these say of each node must be the same, byte by byte: the LIDs are the same too
same=(ibhosts ibswitches ibnodes ibrouters dump_lfts "ibtracert 1 12" "ibroute -M 2" "smpquery nodedesc 2" "smpquery pkeys 1" "smpdump -D 0,1 0x10")
all_say() { # COMMAND…
	local tool
	for tool in "${same[@]}"; do
		echo "== $tool"
		# shellcheck disable=SC2086 # words
		"$@" $tool 2>&1
	done
}
same_topology() {
	local theirs=$work/theirs rc=0
	mkdir -p "$theirs"
	(cd "$theirs" && exec ibsim -s -n "$topology") >"$theirs/out" 2>&1 &
	local ibsim=$!
	wait_for 10 grep -q 'simulator ready' "$theirs/out"
	(cd "$theirs" && export SIM_HOST=H-005e4b0100000004 OSM_CACHE_DIR=$theirs OSM_TMP_DIR=$theirs
		timeout 30 ibsim-run opensm -o -f "$theirs/log" >sm 2>&1; timeout 30 ibsim-run ibnetdiscover >nodes 2>err
		timeout 30 ibsim-run iblinkinfo | sed 's/(.*)$//' >links 2>/dev/null
		all_say timeout 30 ibsim-run >said)
	kill $ibsim
	wait $ibsim
	start_fabric "$topology" || return 1
	rm -rf "$work/sm-host1" # with the LIDs of another fabric
	sm host1 -o
	on host1 ibnetdiscover | grep -v '^# Topology file' >"$work/nodes" || rc=1
	on host1 iblinkinfo | sed 's/(.*)$//' >"$work/links" || rc=1
	all_say on host1 >"$work/tools"
	stop_fabric
	diff "$theirs/said" "$work/tools" || rc=1
	grep -v '^# Topology file' "$theirs/nodes" | diff - "$work/nodes" && diff "$theirs/links" "$work/links" && [ -s "$work/nodes" ] && [ -s "$work/links" ] && return $rc
}
if command -v ibsim >/dev/null; then
	check "the tools show what they show on ibsim" same_topology
else
	skip "the tools show what they show on ibsim" "ibsim is not installed"
fi

# --- a subnet manager that stays ---
start_fabric --generate fat-tree:8,4,4
cat >"$work/partitions" <<-END
	Default=0x7fff: ALL=full;
	blue=0x1234: 0x005e4b0100000005=full, 0x005e4b0100000009=limited;
END
cat >"$work/options" <<-END
	sminfo_polling_timeout 200
	polling_retry_number 2
END
sm host1 -F "$work/options" -P "$work/partitions" -p 5 &
first=$!
check "a subnet manager brings up the fabric and stays" wait_for 30 all_active
says() { # PATTERN PROGRAM ARGS…: its output has it
	local pattern=$1
	shift
	on host1 "$@" >"$work/tool" 2>&1 || { cat "$work/tool"; return 1; }
	grep -qE "$pattern" "$work/tool" || { cat "$work/tool"; return 1; }
}
lid=$(lid_of host20)
check "ibstat shows the LID and the manager's" says 'SM lid: 1$' ibstat
sanitized || check "ibstatus shows the state from files" says '4: ACTIVE' ibstatus
check "ibhosts finds 32 hosts" says 'host32 ib0' ibhosts
check "ibswitches finds the switches" says '"leaf12"' ibswitches
check "sminfo finds the master" says 'SMINFO_MASTER' sminfo
check "ibtracert follows the tables to a host" says '^To ca .*host20' ibtracert 1 "$lid"
check "ibroute shows a switch's table" says 'host20' ibroute -G 0x005e4b0000000005
check "perfquery reads counters" says 'PortXmitPkts' perfquery "$lid" 1
check "perfquery reads extended counters" says 'PortUnicastXmitPkts' perfquery -x "$lid" 1
check "smpquery shows a port" says 'LinkState:.*Active' smpquery portinfo "$lid"
check "saquery gets a table in many segments" says 'host32 ib0' saquery NR
paths_are_all() { on host1 saquery -p >"$work/tool" && [ "$(grep -c '^PathRecord dump' "$work/tool")" -ge $((44 * 44 / 2)) ]; }
check "saquery gets all path records" paths_are_all
answers_all() { # what opensm answers; nobody has subscribed to reports, or registered a service
	local record n rc=0
	for record in CPI:1 NR:44 PIR:268 SL2VL:1 PKTR:100 VLAR:268 LR:128 MCMR:0 LFTR:12 MFTR:0 GIR:44 SWIR:12 SMIR:1 IIR:0 SR:0; do
		on host1 saquery --smkey 1 "${record%:*}" >"$work/tool" 2>&1 || { echo "saquery ${record%:*}"; cat "$work/tool"; rc=1; }
		n=$(grep -c 'dump:\|ClassPortInfo' "$work/tool")
		[ "$n" -ge "${record#*:}" ] || { echo "saquery ${record%:*}: $n records"; rc=1; }
	done
	return $rc
}
check "saquery gets every kind of record that opensm has" answers_all
check "smpquery shows the rest of a port's tables" says 'VLHighCap|VL +' smpquery vlarb "$lid" 1
check "smpquery shows a switch" says 'LinearFdbCap' smpquery switchinfo 2
check "smpdump shows an attribute as bytes" says '^[0-9a-f]{4}' smpdump "$lid" 0x15 1
no_routers() { on host1 ibrouters >"$work/tool" && [ ! -s "$work/tool" ]; }
check "ibrouters finds none" no_routers
check "ibaddr shows a GID" says 'GID fe80::5e:4b01' ibaddr "$lid"
cache_edited() { # another GUID in what ibnetdiscover has kept
	on host1 ibnetdiscover --cache "$work/cache" >/dev/null && on host1 ibcacheedit --caguid 0x005e4b0100000004:0x0123456789abcdef "$work/cache" "$work/edited" &&
		on host1 ibnetdiscover --load-cache "$work/edited" | grep -q '123456789abcdef'
}
check "ibcacheedit edits what ibnetdiscover has kept" cache_edited
refuses_congestion() { ! on host1 ibccquery -t 100 CongestionInfo "$lid" >"$work/tool" 2>&1 && grep -qi 'fail\|iberror' "$work/tool"; }
check "ibccquery: the agents have no congestion control, as ibccquery says" refuses_congestion
system_status() {
	VERBENA_NODE=host20 timeout 20 "${run[@]}" ibsysstat -S >"$work/status" 2>&1 &
	local server=$! rc
	sleep 0.5
	says 'sysstat ping succeeded' ibsysstat "$lid"
	rc=$?
	kill $server
	wait $server
	return $rc
}
check "ibsysstat reaches another host's program" system_status
check "dump_fts shows all tables" says 'leaf12' dump_fts
check "ibqueryerrors has nothing to report but new counters" says 'Summary' ibqueryerrors
pings() {
	VERBENA_NODE=host20 timeout 20 "${run[@]}" ibping -S >"$work/pong" 2>&1 &
	local server=$! rc
	sleep 0.5
	says ' 2 received' ibping -c 2 "$lid"
	rc=$?
	kill $server
	wait $server
	return $rc
}
check "ibping reaches another host's program" pings
check "partitions.conf reaches the P_Key table of a full member" says '0x9234' smpquery pkeys 1
check "partitions.conf reaches the P_Key table of a limited member" says '0x1234' smpquery pkeys "$(lid_of host2)"
no_member() { ! says '1234' smpquery pkeys "$lid"; }
check "another host has no such P_Key" no_member

# --- accidents ---
way_changes() {
	local before after
	before=$(on host1 ibtracert 1 "$lid" | grep -o 'spine[0-9]*' | head -1)
	ctl link "$before" 1 down || return 1
	wait_for 20 way_is_not "$before"
}
way_is_not() { on host1 ibtracert 1 "$lid" >"$work/way" 2>&1 && grep -q spine "$work/way" && ! grep -q "$1" "$work/way"; }
check "after a cut cable the manager leads around it" way_changes
ctl counters leaf5 1 symbol_errors=7 >/dev/null
errors_found() { on host1 ibqueryerrors >"$work/tool" 2>&1 || [ $? = 1 ] && grep -q 'SymbolErrorCounter == 7' "$work/tool"; } # 1: there are errors
check "an error counter that was set is found by ibqueryerrors" errors_found
port_down() { ctl show leaf12 | grep -q '^  \[4\] Down'; }
port_up() { ctl show leaf12 | grep -q '^  \[4\] Active'; }
leaf=$(on host1 ibswitches | sed -n 's/.*"leaf12".* lid \([0-9]*\) .*/\1/p')
disable() { on host1 ibportstate "$leaf" 4 disable && port_down; }
check "ibportstate disables a port" disable
enable() { on host1 ibportstate "$leaf" 4 enable && wait_for 20 port_up; }
check "ibportstate enables it, and the manager brings it up" enable
printf 'Ca 1 "new" # "newcomer ib0"\n[1] "S-005e4b0000000001"[12]\n' >"$work/new"
not_there() { ! ctl add "$work/new"; }
check "a node on a port that does not exist is refused" not_there
printf 'Switch 4 "new"\n[1] "newer"[1]\n\nCa 1 "newer" # "newcomer ib0"\n' >"$work/new"
check "nodes are added to a running fabric" ctl add "$work/new"
check "a switch goes off" ctl node spine4 off
silent() { ! on host1 ibswitches | grep -q spine4; }
check "and is gone from ibswitches" wait_for 20 silent
check "and on" ctl node spine4 on
spine_back() { [ "$(ctl show spine4 | grep -c Active)" = 7 ] || [ "$(ctl show spine4 | grep -c Active)" = 8 ]; }
check "and the manager brings it up again" wait_for 20 spine_back

# --- takeover ---
sm host9 -F "$work/options" -p 1 &
second=$!
check "a second manager stands by" wait_for 20 log_has host9 'Entering STANDBY'
kill -9 "$(program_of $first)"
check "it takes over when the first is killed" wait_for 30 log_has host9 'Entering MASTER'
new_master() { says "sm lid $(($(lid_of host9))) .*MASTER" sminfo; }
check "and sminfo names it" wait_for 30 new_master
kill "$(program_of $second)"
wait $first $second
check "the fabric ends by a command" stop_fabric

# --- without a fabric, and with a wrong one ---
printf 'Switch 2 "a"\n[1] "b"[1]\n' >"$work/wrong"
refused() { ! "$FABRIC" "$work/wrong" --socket "$work/x" >"$work/tool" 2>&1 && grep -q ':2: .*no "b"' "$work/tool"; }
check "a topology with a cable to nothing is refused with its line" refused
gone_fabric() { ! on host1 ibstat >"$work/tool" 2>&1 && grep -q 'verbena: libibumad' "$work/tool"; }
check "a program says so if the fabric does not run" gone_fabric
systems() { env -u VERBENA_FABRIC "${run[@]}" ibstat -l >"$work/tool" 2>&1; ! grep -q '^ib0$' "$work/tool"; }
check "without VERBENA_FABRIC programs have the system's libibumad" systems
finish

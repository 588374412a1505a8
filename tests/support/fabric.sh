# fabric.sh - what the tests on simulated InfiniBand fabrics have in common: a fabric, opensm on it, programs on its hosts
# SPDX-License-Identifier: MIT
# sourced, not run
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need opensm ibnetdiscover
FABRIC=$BUILD/src/fabric/verbena-fabric
export VERBENA_FABRIC=$work/fabric VERBENA_NODE=host1

ctl() { "$FABRIC" ctl "$@"; }
on() { # NODE PROGRAM ARGS…
	local node=$1
	shift
	VERBENA_NODE=$node timeout -k 2 $((30 * SLOW)) "${run[@]}" "$@"
}
serves() { ctl states >/dev/null 2>&1; }
start_fabric() { # verbena-fabric's ARGS…
	"$FABRIC" "$@" --socket "$VERBENA_FABRIC" >"$work/fabric.out" 2>&1 &
	fabric=$!
	wait_for 20 serves
}
stop_fabric() {
	ctl stop && wait "$fabric"
}
# A directory of its own for what opensm writes: sm NODE ARGS…
sm() {
	local node=$1 dir=$work/sm-$1
	shift
	mkdir -p "$dir"
	local command=(env OSM_CACHE_DIR="$dir" OSM_TMP_DIR="$dir" VERBENA_NODE="$node" timeout -k 2 $((250 * SLOW)) "${opensm[@]}" -f "$dir/log" "$@")
	[ $BASHPID = $$ ] || exec "${command[@]}" >"$dir/out" 2>&1 # in the background: its job is what cleanup ends
	"${command[@]}" >"$dir/out" 2>&1
}
log_has() { grep -q "$2" "$work/sm-$1/log" 2>/dev/null; } # NODE PATTERN
all_active() { ctl states | awk '{ exit !($4 && $4 == $12) }'; }
lid_of() { on "$1" ibaddr | sed 's/.*start \(0x[0-9a-f]*\).*/\1/'; }
# NODE: of its port 1. opensm's partitions.conf names ports
port_guid() { printf '0x%016x' $((16#$(ctl show "$1" | sed -n 's/.* guid 0x\([0-9a-f]*\).*/\1/p' | head -1) + 1)); }

# pair NODE NODE PROGRAM ARGS…: a server on the one, its client on the other
pair() {
	local rc=0
	VERBENA_NODE=$1 start_server "${@:3}"
	VERBENA_NODE=$2 start_client "${@:3}"
	wait "$client" || rc=1
	wait "$server" || rc=1
	[ $rc = 0 ] || said_by_both
	return $rc
}
sees_cut() { grep -q 'Completion with error\|transport retry counter exceeded\|Failed status 12' "$work/server.out" "$work/client.out"; }
fails() { # NODE NODE PROGRAM ARGS…: its client's retries end; the server waits for nothing
	local rc=0
	VERBENA_NODE=$1 start_server "${@:3}"
	VERBENA_NODE=$2 start_client "${@:3}"
	if wait "$client" || ! sees_cut; then
		said_by_both
		rc=1
	fi
	kill "$server" 2>/dev/null
	wait "$server"
	return $rc
}

words_of() { ctl counters "$1" 1 | awk '$1 == "xmit_data" { print $2 }'; } # NODE: what its port 1 has sent
has_sent() { [ "$(words_of "$1")" -gt "$2" ]; } # NODE WORDS
spine_between() { on host1 ibtracert "$(($(lid_of "$1")))" "$(lid_of "$2")" | grep -o 'spine[0-9]*' | head -1; } # NODE NODE
goes_on_without_spine() { # NODE NODE: the switch in the middle of their way goes off while they talk
	local spine words
	spine=$(spine_between "$@") words=$(words_of "$2")
	VERBENA_NODE=$1 start_server ib_send_lat -d ib0 -D 2 -u 18
	VERBENA_NODE=$2 start_client ib_send_lat -d ib0 -D 2 -u 18
	wait_for 9 has_sent "$2" $((words + 1000)) && ctl node "$spine" off || return 1
	if wait "$client" && wait "$server" && [ "$(spine_between "$@")" != "$spine" ]; then
		return 0
	fi
	said_by_both
	return 1
}
ends_with() { # NODE NODE COMMAND ARGS…: it cuts all ways while they talk: an end gets what a cut cable gives
	local rc=0 words
	words=$(words_of "$2")
	VERBENA_NODE=$1 start_server ib_send_lat -d ib0 -D 10 -u 12
	VERBENA_NODE=$2 start_client ib_send_lat -d ib0 -D 10 -u 12
	wait_for 9 has_sent "$2" $((words + 1000)) && "${@:3}" || return 1
	wait_for 20 sees_cut || { said_by_both; rc=1; }
	kill "$server" "$client" 2>/dev/null
	wait "$server" "$client"
	return $rc
}
peer_dies() { # NODE NODE: the server is killed while both write; its peer gets what a cut cable gives, and others go on
	local rc=0 words
	words=$(words_of "$2")
	VERBENA_NODE=$1 start_server ib_write_bw -d ib0 -b -D 10 -u 12
	VERBENA_NODE=$2 start_client ib_write_bw -d ib0 -b -D 10 -u 12
	wait_for 9 has_sent "$2" $((words + 1000000)) || rc=1
	kill -9 "$(program_of "$server")" || rc=1
	wait_for 20 sees_cut || { said_by_both; rc=1; }
	kill "$client" 2>/dev/null
	wait "$server" "$client"
	pair "$1" "$2" ibv_rc_pingpong -d ib0 -n 100 -c && return $rc
}
fabric_again() { # NODE NODE: it was killed, and is started again; so are opensm and the programs
	start_fabric "${@:3}" || return 1
	sm host1 &
	manager=$!
	wait_for 30 all_active && pair "$1" "$2" ibv_rc_pingpong -d ib0 -n 100 -c
}

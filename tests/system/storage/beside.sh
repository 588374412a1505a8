# beside.sh - what goes by the wire goes on beside what stays on the host: most of the time both wait
# follows: rdma.sh, client_rdma.sh
# SPDX-License-Identifier: MIT
# sourced, not run; limit: seconds
declare -A begun=()
begin() { # NAME COMMAND…: goes on beside what follows; most of the time it waits
	local name=$1
	shift
	"$@" >"$work/$name.out" 2>&1 </dev/null &
	begun[$name]=$!
}
ended() { # NAME
	local status=0
	wait "${begun[$1]}" || status=$?
	cat "$work/$1.out"
	return $status
}
may_wire() { [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; }
on_wire() { # NAME PROGRAM ARGS…: in a network and with a broker of its own, since port 4791 may be somebody else's outside
	mkdir -m 700 "$work/$1"
	unshare -n env VERBENA_WIRE=always "VERBENA_RUNTIME=$work/$1" sh -c 'ip link set lo up; exec "$@"' sh timeout -k 2 $limit "${run[@]}" "${@:2}"
}

# beside.sh - runs network cases beside same-host cases, because both mostly wait
# follows: rdma.sh, client_rdma.sh
# SPDX-License-Identifier: MIT
# sourced, not run; limit: seconds
declare -A begun=()
begin() { # NAME COMMAND…: runs in parallel to what follows, because it mostly waits
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
on_wire() { # NAME PROGRAM ARGS…: in its own network with its own broker: port 4791 may be in use outside
	mkdir -m 700 "$work/$1"
	unshare -n env VERBENA_WIRE=always "VERBENA_RUNTIME=$work/$1" sh -c 'ip link set lo up; exec "$@"' sh timeout -k 2 $limit "${run[@]}" "${@:2}"
}

#!/bin/bash
# verbs.sh - what programs may do wrong, and a random walk through the verbs, by LID on a simulated fabric: in shared memory, and
#   packet by packet through its switches
# follows: tests/system/refusals/table, tests/system/walk/run
# SPDX-License-Identifier: MIT
# VERBS=SECONDS: the cases with the patience of the test `refusals`, and walks of so many seconds each, also with programs that
#   are killed and stopped
source "$(dirname "$0")/../../support/fabric.sh"
need python3
here=$ROOT/tests/system/refusals
(cd "$here" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/refusals" refusals.c cases.c ends.c request.c outcome.c windows.c -lrdmacm -libverbs) || exit 1
walk=$BUILD/tests/system/walk/walk
[ -x "$walk" ] || { echo "$walk is missing: make build"; exit 2; }
long() { [ -n "${VERBS:-}" ]; }

start_fabric --generate fat-tree:2,2,3
sm host1 &
manager=$!
check "opensm brings up the fabric" wait_for 30 all_active

# --- the table: the requester is on host2, the responder on host6, behind three switches ---
table() { python3 "$here/table.py" "$1" "$here/table" "$2" "$work/lines-$2"; } # COMMAND COLUMN
quiet=4 # ms without an event, after which the outcome counts. A case that differs is repeated with more patience
! long || quiet=40
outcomes() { # COLUMN WIRE
	local tried=(env VERBENA_WIRE="$2" VERBENA_NODE=host2 timeout -k 2 $((900 * SLOW)) "${run[@]}" "$work/refusals" -d ib0 -e VERBENA_NODE=host6) names
	"${tried[@]}" -q $quiet >"$work/lines-$1" || return 1
	if ! table differ "$1" >"$work/again-$1"; then
		mapfile -t names <"$work/again-$1"
		echo "# ${#names[@]} cases of $1 once more"
		"${tried[@]}" -q 1000 "${names[@]}" >>"$work/lines-$1" || return 1
	fi
	table check "$1"
}
both() { # the columns at the same time, because each mostly waits
	local packets rc=0
	outcomes packets always >"$work/said-packets" 2>&1 &
	packets=$!
	outcomes fabric auto || rc=1
	wait $packets || rc=1
	cat "$work/said-packets"
	return $rc
}
check "every wrong use has the outcome of the table, in shared memory and packet by packet" both

# --- the walk: each of its processes is a host ---
walks() { # WIRE SECONDS ARGS…
	local wire=$1 seconds=$2
	VERBENA_WIRE=$wire VERBENA_SENDS=random VERBENA_RDMA=random timeout -k 2 $(((seconds + 120) * SLOW)) \
		"${own[@]}" "$ROOT/tests/system/walk/run" "$walk" -f -s "$seconds" "${@:3}"
}
check "a random walk of three hosts" walks auto "${VERBS:-4}" -l
check "a random walk of three hosts, packet by packet" walks always "${VERBS:-4}" -l
if long; then
	check "a random walk of hosts whose programs are killed and stopped" walks auto "$VERBS" -l -k
	check "a random walk of hosts whose programs are killed and stopped, packet by packet" walks always "$VERBS" -l -k
	check "a random walk with many queue pairs" walks auto "$VERBS" -k -p 5 -e 230 -a 2048
	check "a random walk with many queue pairs, packet by packet" walks always "$VERBS" -k -p 5 -e 230 -a 2048
fi
kill "$(program_of "$manager")" 2>/dev/null
wait "$manager"
check "the fabric ends" stop_fabric
finish

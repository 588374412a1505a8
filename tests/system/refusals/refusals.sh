#!/bin/bash
# refusals.sh - compares what becomes of every wrong use of a queue pair with the table, on one host, by RoCE and by iWARP
# SPDX-License-Identifier: MIT
# usage: refusals.sh PROGRAM SOURCE   PROGRAM is refusals.c
#
# A case that differs is repeated with more patience, because a busy machine may be late.
set -u
program=$1 source=$2
here=$source/tests/system/refusals
table=$here/table
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-refusals.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export VERBENA_BROKER_LINGER=200
failed=0

is() { # SENTENCE STATUS
	if [ "$2" = 0 ]; then
		echo "ok $1"
	else
		echo "not ok $1"
		sed 's/^/	/' "$work/said"
		failed=1
	fi
}

# The paths are tried at the same time, because each mostly waits. Each has its own broker and its own port 4791
columns=() sentences=() pids=()
# path COLUMN SENTENCE ENVIRONMENT… -- ARGS…
path() {
	columns+=("$1") sentences+=("$2")
	mkdir -m 700 "$work/run-$1"
	outcomes "$1" "${@:3}" >"$work/said-$1" 2>&1 &
	pids+=($!)
}
outcomes() { # COLUMN ENVIRONMENT… -- ARGS…
	local column=$1 environment=("VERBENA_RUNTIME=$work/run-$1") names
	shift
	while [ "$1" != -- ]; do
		environment+=("$1")
		shift
	done
	shift
	tried=("$source/tests/support/own-network" env "${environment[@]}" timeout 900 "$program" "$@")
	"${tried[@]}" >"$work/$column" || return 1
	if ! python3 "$here/table.py" differ "$table" "$column" "$work/$column" >"$work/again-$column"; then
		mapfile -t names <"$work/again-$column"
		"${tried[@]}" -q 1000 "${names[@]}" >>"$work/$column" || return 1
	fi
	python3 "$here/table.py" check "$table" "$column" "$work/$column"
}

path host "on one host every wrong use has the outcome of the table" VERBENA_WIRE=auto -- -d roce_lo
path ring "on one host with copies in the ring, too" VERBENA_WIRE=auto VERBENA_RDMA=ring VERBENA_SENDS=ring -- -d roce_lo
path copy "on one host with one copy, too" VERBENA_WIRE=auto VERBENA_RDMA=copy VERBENA_SENDS=fetch -- -d roce_lo
path roce "by RoCE every wrong use has the outcome of the table" VERBENA_WIRE=always -- -d roce_lo
path iwarp "by iWARP every wrong use has the outcome of the table" VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo -- -a 127.0.0.1
for i in "${!pids[@]}"; do
	wait "${pids[i]}"
	status=$?
	cp "$work/said-${columns[i]}" "$work/said"
	is "${sentences[i]}" $status
done
"$program" -n >"$work/names"
python3 "$here/table.py" lint "$table" "$source" "$work/names" >"$work/said"
is "each difference has its reason, and each status and event its place" $?
python3 "$here/table.py" document "$table" | diff - "$source/docs/errors.md" >"$work/said"
is "docs/errors.md is the table" $?
exit $failed

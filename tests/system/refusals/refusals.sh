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
trap 'rm -rf "$work"' EXIT
export VERBENA_RUNTIME=$work/run VERBENA_BROKER_LINGER=200
mkdir -m 700 "$VERBENA_RUNTIME"
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

# path COLUMN SENTENCE ENVIRONMENT… -- ARGS…
path() {
	local column=$1 sentence=$2 environment=() names
	shift 2
	while [ "$1" != -- ]; do
		environment+=("$1")
		shift
	done
	shift
	env "${environment[@]}" timeout 900 "$program" "$@" >"$work/$column" 2>"$work/said" || { is "$sentence" 1; return; }
	if ! python3 "$here/table.py" differ "$table" "$column" "$work/$column" >"$work/again"; then
		mapfile -t names <"$work/again"
		env "${environment[@]}" timeout 900 "$program" "$@" -q 1000 "${names[@]}" >>"$work/$column" 2>"$work/said" || { is "$sentence" 1; return; }
	fi
	python3 "$here/table.py" check "$table" "$column" "$work/$column" >"$work/said"
	is "$sentence" $?
}

path host "on one host every wrong use has the outcome of the table" VERBENA_WIRE=auto -- -d roce_lo
path ring "on one host with copies in the ring, too" VERBENA_WIRE=auto VERBENA_RDMA=ring VERBENA_SENDS=ring -- -d roce_lo
path copy "on one host with one copy, too" VERBENA_WIRE=auto VERBENA_RDMA=copy VERBENA_SENDS=fetch -- -d roce_lo
path roce "by RoCE every wrong use has the outcome of the table" VERBENA_WIRE=always -- -d roce_lo
path iwarp "by iWARP every wrong use has the outcome of the table" VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo -- -a 127.0.0.1
"$program" -n >"$work/names"
python3 "$here/table.py" lint "$table" "$source" "$work/names" >"$work/said"
is "each difference has its reason, and each status and event its place" $?
python3 "$here/table.py" document "$table" | diff - "$source/docs/errors.md" >"$work/said"
is "docs/errors.md is the table" $?
exit $failed

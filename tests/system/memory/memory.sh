#!/bin/bash
# memory.sh - under verbena run whole pages are memory that peers can map, and where that is not right they are private
# usage: memory.sh VERBENA CALLS OWN_FREE ADDRESS
# SPDX-License-Identifier: MIT
set -u
verbena=$1 calls=$2 own_free=$3 address=$4
VERBENA_RUNTIME=$(mktemp -d)
export VERBENA_RUNTIME
trap 'rm -rf "$VERBENA_RUNTIME"' EXIT
failed=0
expect() { # SENTENCE shared|private COMMAND…
	local sentence=$1 what=$2
	shift 2
	if "$@" "$calls" "$what"; then echo "ok $sentence"; else
		echo "not ok $sentence"
		failed=1
	fi
}
run=(timeout 60 "$verbena" run)
library=$(dirname "$verbena")/src/tools/libverbena-memory.so

expect "by default it is shared" shared "${run[@]}"
expect "VERBENA_MEMORY=pages says so" shared env VERBENA_MEMORY=pages "${run[@]}"
expect "VERBENA_MEMORY=off" private env VERBENA_MEMORY=off "${run[@]}"
expect "a program sets it off for its children" private "${run[@]}" env VERBENA_MEMORY=off
expect "--no-shim" private "${run[@]}" --no-shim
expect "a launcher within another" shared "${run[@]}" "$verbena" run
expect "files are limited" private "${run[@]}" prlimit --fsize=1000000
expect "addresses are limited" private "${run[@]}" prlimit --as=1000000000
expect "the library alone" shared timeout 60 env LD_PRELOAD="$library"
expect "few descriptors" shared "${run[@]}" prlimit --nofile=64
if "${run[@]}" "$own_free"; then echo "ok a program with a free() of its own gets none"; else
	echo "not ok a program with a free() of its own gets none"
	failed=1
fi
if "${run[@]}" "$address"; then echo "ok a program at a fixed address that stores where free() is gets it"; else
	echo "not ok a program at a fixed address that stores where free() is gets it"
	failed=1
fi
exit $failed

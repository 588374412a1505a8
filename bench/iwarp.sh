#!/bin/bash
# iwarp.sh - the figures of iWARP between two network namespaces, each beside plain TCP and its users in the same run; iwarp.py measures
# follows: README.md; everything runs in a PID and a network namespace of its own, so that nothing can be left behind
# usage: bench/iwarp.sh [bw|crc|lat]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
set -u
here=$(dirname "$(readlink -f "$0")")
[ "$(id -u)" = 0 ] || { echo "iwarp.sh: making network namespaces needs root" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-iwarp.XXXXXX") || exit 2
inside=
cleanup() {
	[ -z "$inside" ] || kill "$inside" 2>/dev/null # --kill-child: the namespace and all in it go too
	wait
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
unset VERBENA_DEVICES VERBENA_WIRE VERBENA_MPA
WIRE_WORK=$work setpriv --pdeathsig KILL unshare --net --pid --fork --kill-child --mount-proc "$here/iwarp.py" "$@" </dev/null &
inside=$!
wait "$inside"
result=$?
inside=
exit $result

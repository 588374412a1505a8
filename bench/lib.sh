# lib.sh - runs a measurement in its own PID and network namespaces, so that nothing is left behind
# see: bench/README.md; setpriv(1), unshare(1)
# SPDX-License-Identifier: MIT
# sourced, not run
set -u
here=$(dirname "$(readlink -f "$0")")
name=$(basename "$0" .sh)
[ "$(id -u)" = 0 ] || { echo "$name.sh: making network namespaces needs root" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-$name.XXXXXX") || exit 2
inside=
cleanup() {
	[ -z "$inside" ] || kill "$inside" 2>/dev/null # --kill-child: also ends the namespace and all processes in it
	wait
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
unset VERBENA_DEVICES VERBENA_WIRE VERBENA_MPA VERBENA_NVME_SECRET VERBENA_NVME_CONTROLLER_SECRET VERBENA_NVME_TLS_KEY

# measure ARGS…: runs the program beside the script that has its name, and exits with its status
measure() {
	WIRE_WORK=$work setpriv --pdeathsig KILL unshare --net --pid --fork --kill-child --mount-proc "$here/$name.py" "$@" </dev/null &
	inside=$!
	wait "$inside"
	local result=$?
	inside=
	exit $result
}

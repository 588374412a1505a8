#!/bin/bash
# storage.sh - the figures of storage/: verbena-target and verbena-disk beside nbdkit, read(2), iperf3 and our own NVMe/TCP; storage.py measures
# follows: README.md; everything runs in a PID and a network namespace of its own, so that nothing can be left behind
# usage: bench/storage.sh [small|large|wire|cost]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
set -u
here=$(dirname "$(readlink -f "$0")")
[ "$(id -u)" = 0 ] || { echo "storage.sh: making network namespaces needs root" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-storage.XXXXXX") || exit 2
inside=
cleanup() {
	[ -z "$inside" ] || kill "$inside" 2>/dev/null # --kill-child: the namespace and all in it go too
	wait
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
unset VERBENA_DEVICES VERBENA_WIRE VERBENA_MPA VERBENA_NVME_SECRET VERBENA_NVME_CONTROLLER_SECRET VERBENA_NVME_TLS_KEY
WIRE_WORK=$work setpriv --pdeathsig KILL unshare --net --pid --fork --kill-child --mount-proc "$here/storage.py" "$@" </dev/null &
inside=$!
wait "$inside"
result=$?
inside=
exit $result

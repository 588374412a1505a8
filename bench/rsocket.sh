#!/bin/bash
# rsocket.sh - rstream over rsockets and TCP, on one host and between two network namespaces; rsocket.py measures
# see: bench/README.md. The second part needs root, and runs in its own PID and network namespaces.
# usage: bench/rsocket.sh [host|veth]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
set -u
here=$(dirname "$(readlink -f "$0")")
unset VERBENA_DEVICES VERBENA_WIRE
result=0
[ $# -gt 0 ] || set -- host veth
for part; do
	case $part in
	host) "$here/rsocket.py" host ;;
	veth)
		[ "$(id -u)" = 0 ] || { echo "rsocket.sh: making network namespaces needs root" >&2; exit 2; }
		setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc "$here/rsocket.py" veth </dev/null
		;;
	*) echo "usage: bench/rsocket.sh [host|veth]..." >&2; exit 2 ;;
	esac
	rc=$?
	[ $rc -le $result ] || result=$rc
	[ $rc -lt 128 ] || exit $rc
	export BENCH_HEADER=no
done
exit $result

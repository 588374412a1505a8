#!/bin/bash
# user_namespace.sh - root of a user namespace has its tree beside its broker, and never uses the real root's directory
# follows: verbena(7), VERBENA_RUNTIME; user_namespaces(7)
# SPDX-License-Identifier: MIT
# usage: user_namespace.sh VERBENA
set -u
verbena=$1
[ "$(id -u)" = 0 ] || { echo "skipped: needs root to be two users"; exit 77; }
if [ -z "${VB_TEST_INSIDE:-}" ]; then
	unshare -mn true 2>/dev/null || { echo "skipped: no namespaces here"; exit 77; }
	VB_TEST_INSIDE=1 exec unshare -mn "$0" "$(realpath "$verbena")"
fi
mount -t tmpfs -o mode=755 run /run && mount -t tmpfs -o mode=1777 tmp /tmp || { echo "skipped: no tmpfs"; exit 77; }
cd / || exit 1
unset VERBENA_RUNTIME XDG_RUNTIME_DIR VERBENA_LOG VERBENA_DEVICES VERBENA_LIDS
user=65533
as() { setpriv --reuid $user --regid $user --clear-groups "$@"; }
as "$verbena" version >/dev/null || { echo "skipped: other users cannot get at $verbena"; exit 77; }
as unshare -Urn true 2>/dev/null || { echo "skipped: no user namespaces here"; exit 77; }
failed=0
expect() { # SENTENCE PATTERN COMMAND…: its output matches
	local out
	out=$("${@:3}" 2>&1)
	if [[ $out == $2 ]]; then echo "ok $1"; else
		echo "FAILED $1: $out"
		failed=1
	fi
}
look=("$verbena" run ls /sys/class/infiniband)

expect "root" "roce_lo" "${look[@]}"
expect "and stands in root's directory" "/run/verbena/sys.*" bash -c 'echo /run/verbena/sys.*'
expect "a user's user namespace, after root" "roce_lo" as unshare -Urn "${look[@]}"
expect "its tree stands in its own directory" "/tmp/verbena-0/sys.*" bash -c 'echo /tmp/verbena-0/sys.*'
expect "with XDG_RUNTIME_DIR" "roce_lo" as env XDG_RUNTIME_DIR=/tmp/verbena-0 unshare -Urn "${look[@]}"
expect "there" "/tmp/verbena-0/verbena/sys.*" bash -c 'echo /tmp/verbena-0/verbena/sys.*'
expect "root's user namespace" "roce_lo" unshare -Urn "${look[@]}"
rm -rf /tmp/verbena-0
expect "what stands in /run is not believed" "*No such file*" as unshare -Urn env LD_PRELOAD="$(dirname "$verbena")/src/tools/libverbena-paths.so" ls /sys/class/infiniband
# a user namespace that starts below root's program, without its own launcher
expect "nor what the launcher outside has written, in a network of its own" "*No such file*" \
	"$verbena" run unshare -Urn ls /sys/class/infiniband
exit $failed

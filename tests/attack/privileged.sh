#!/bin/bash
# privileged.sh - a user runs a set-user-ID program with variables of his choice: none is read or passed on
# follows: secure_getenv(3)
# see: SECURITY.md
# SPDX-License-Identifier: MIT
# usage: privileged.sh PROGRAM VERBENA
set -u
program=$(realpath "$1") verbena=$(realpath "$2")
trap '' PIPE
[ "$(id -u)" = 0 ] || { echo "skipped: needs root to make a set-user-ID program"; exit 77; }
# its own /run, without a broker of this machine, and its own network
if [ -z "${VB_TEST_INSIDE:-}" ]; then
	unshare -mn true 2>/dev/null || { echo "skipped: no namespaces here"; exit 77; }
	VB_TEST_INSIDE=1 exec unshare -mn "$0" "$program" "$verbena"
fi
tree=$(dirname "$verbena")
mount -t tmpfs -o mode=755 run /run && mkdir /run/tree && mount --bind "$tree" /run/tree && mount -t tmpfs -o mode=1777 tmp /tmp || {
	echo "skipped: no mounts"
	exit 77
}
[ -e "$verbena" ] || { mkdir -p "$tree" && mount --bind /run/tree "$tree"; } || exit 1 # if it was built below /tmp
umount /run/tree && rmdir /run/tree || exit 1
ip link set lo up
cd / || exit 1
unset TMPDIR # its folder is below the new /tmp
unset VERBENA_RUNTIME # the program ignores it, so the command must look where the program is
work=$(mktemp -d) && hostile=$(mktemp -d) || exit 1
brokers() { # pids of the brokers in our mount namespace
	pgrep --ns $$ --nslist mnt -f '^verbena-broker'
}
cleanup() {
	local p
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	exec 3>&-
	for p in $(brokers); do kill "$p" 2>/dev/null; done
	rm -rf "$work" "$hostile"
}
trap cleanup EXIT
chmod 755 "$work"
chown 65534:65534 "$hostile"
install -o root -m 4755 "$program" "$work/program"
mount | grep -q " on $(stat -c %m "$work") .*nosuid" && { echo "skipped: $work does not honour set-user-ID"; exit 77; }
cat >"$hostile/broker" <<-IN
	#!/bin/sh
	touch $hostile/broker-was-started
	exit 1
IN
chmod 755 "$hostile/broker"
mkdir "$hostile/sys" "$hostile/runtime" "$hostile/verbena"
chown -R 65534:65534 "$hostile"
can_raise=$(ulimit -n 64 && ulimit -n 65 2>/dev/null && echo yes) # CAP_SYS_RESOURCE
[ -n "$can_raise" ] || echo "skip the broker's limits: this root cannot raise its own"
own_broker=$(realpath "$(dirname "$verbena")/src/broker/verbena-broker")
failed=0
expect() { # SENTENCE COMMAND…
	local sentence=$1
	shift
	if "$@" >"$work/said" 2>&1; then echo "ok $sentence"; else
		echo "FAILED $sentence"
		sed 's/^/	/' "$work/said"
		failed=1
	fi
}
is() { [ "$1" = "$2" ] || { echo "$1, not $2"; return 1; }; }
has() { grep -qx "$1" "$work/out" || { cat "$work/out"; return 1; }; }
has_not() { [ -r "$2" ] && ! grep -a "$1" "$2"; }
nothing_was_made() {
	local made
	made=$(cd "$hostile" && find . -newer "$work/mark" ! -type d)
	[ -z "$made" ] || { echo "$made"; return 1; }
}

# run PROGRAM become|stay: as nobody, with hostile variables and hard limits that root's broker must not inherit
run() {
	touch "$work/mark"
	sleep 0.05
	rm -f "$work/in"
	mkfifo "$work/in"
	chmod 644 "$work/in"
	(
		umask 0777
		ulimit -n 64
		ulimit -t 50
		exec setpriv --reuid 65534 --regid 65534 --clear-groups nice -n 10 env -i PATH="$hostile:$PATH" HOME="$hostile" \
			VERBENA_BROKER="$hostile/broker" VERBENA_BROKER_LOG="$hostile/broker.log" VERBENA_BROKER_LINGER=3600000 \
			VERBENA_RUNTIME="$hostile/runtime" XDG_RUNTIME_DIR="$hostile" VERBENA_DEVICES=none VERBENA_LIDS=1 VERBENA_LOG=debug \
			VERBENA_WIRE=bogus VERBENA_FAULT=bogus VERBENA_MPA=bogus VERBENA_CONGESTION=bogus VERBENA_LANES=2 \
			SYSFS_PATH="$hostile/sys" VERBENA_RSOCKETS=bogus VERBENA_ANYTHING=bogus \
			RDMAV_DRIVERS="$hostile/evil" IBV_DRIVERS="$hostile/evil" VERBS_LOG_FILE="$hostile/log" \
			MLX5_DEBUG_FILE="$hostile/log" QELR_DEBUG_FILE="$hostile/log" \
			timeout 60 "$1" "$2"
	) <"$work/in" >"$work/out" 2>"$work/err" &
	child=$!
	exec 3>"$work/in"
	for _ in $(seq 600); do
		grep -qxE 'ready|failed.*' "$work/out" && break
		kill -0 "$child" 2>/dev/null || break
		sleep 0.05
	done
}
as_caller() {
	setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" timeout 60 "$@"
}
finish() {
	echo >&3
	exec 3>&-
	wait "$child"
}

for way in become stay grouped capable; do
	directory=/run/verbena mode=755
	[ $way = become ] || [ $way = stay ] || directory=/tmp/verbena-65534 mode=700
	[ $way = grouped ] && install -g 60 -m 2755 "$program" "$work/program"
	if [ $way = capable ]; then
		install -m 755 "$program" "$work/program"
		setcap cap_net_raw+ep "$work/program" 2>/dev/null || { echo "skip a program with a capability: no setcap"; break; }
	fi
	run "$work/program" $way
	expect "a program with privileges ($way) works" has ready
	expect "its devices are all ($way)" has 'devices [1-9].*'
	expect "no LIDs ($way)" has 'lid 0'
	expect "the attribute is its own, not one of SYSFS_PATH ($way)" has 'sysfs 1: CA'
	expect "it says nothing ($way)" is "$(cat "$work/err")" ""
	expect "what it starts sees none of its caller's variables ($way)" has_not '^\(VERBENA_\|RDMAV_\|IBV_\|VERBS_\|MLX\|QELR_\|SYSFS_PATH\)' "$work/out"
	broker=$(brokers | head -1)
	broker=${broker:-none}
	expect "its broker is a process ($way)" test "$broker" != none
	expect "in $directory ($way)" grep -qz "^$directory\$" "/proc/$broker/cmdline"
	expect "whatever his umask is ($way)" is "$(stat -c %a $directory)" $mode
	expect "not its caller's ($way)" is "$(readlink "/proc/$broker/exe")" "$own_broker"
	tr '\0' '\n' 2>/dev/null <"/proc/$broker/environ" >"$work/environ"
	expect "the broker's environment is a fixed PATH ($way)" is "$(cat "$work/environ")" PATH=/usr/sbin:/usr/bin:/sbin:/bin
	[ -n "$can_raise" ] && [ $mode = 755 ] && expect "the broker has not its caller's limits ($way)" has_not '^Max open files  *64 \|^Max cpu time  *50 ' "/proc/$broker/limits"
	[ $mode = 755 ] && expect "nor his niceness ($way)" is "$(ps -o ni= -p "$broker" | xargs)" 0
	groups=$(awk '/^Gid:/ { print $2, $3, $4 }' "/proc/$broker/status")
	[ $way = grouped ] && expect "nor the group that the program has and its caller has not" is "$groups" "65534 65534 65534"
	expect "root may ask it ($way)" grep -q '"pid"' <("$verbena" stat processes --json 2>&1)
	expect "its caller may not ($way)" is "$(as_caller "$verbena" stat processes --json | tr -d ' \n')" '{"processes":[]}'
	expect "nothing was made in his directories ($way)" nothing_was_made
	finish
	for _ in $(seq 100); do [ -z "$(brokers)" ] && break; sleep 0.05; done
	expect "the broker goes when it should ($way)" is "$(brokers)" ""
	rm -rf $directory
done

# a privileged launcher would pass its privileges to any program
install -o root -m 4755 "$verbena" "$work/verbena"
setpriv --reuid 65534 --regid 65534 --clear-groups "$work/verbena" run id >"$work/out" 2>"$work/err"
expect "a set-user-ID launcher starts nothing" is "$? $(cat "$work/out")" "125 "
exit $failed

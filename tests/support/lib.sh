# lib.sh - what the scripts in tests/system/apps have in common: a runtime directory of their own, bounded pairs, ok and not ok
# BUILD names the build directory
# SPDX-License-Identifier: MIT
# sourced, not run
set -u
# Debian's own interpreters: others may be wrapped by scripts that start twenty processes
PATH=/usr/bin:$PATH
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
VERBENA=$BUILD/verbena
[ -x "$VERBENA" ] || { echo "$VERBENA is missing: make build"; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-test.XXXXXX")
chmod 755 "$work"
export VERBENA_RUNTIME=$work/run
mkdir -m 700 "$VERBENA_RUNTIME"
mkfifo "$work/.pause"
export XDG_CONFIG_HOME=$work/config # no file of verbena link
unset VERBENA_DEVICES VERBENA_LIDS VERBENA_LOG VERBENA_BROKER_LOG
failed=0
SLOW=1 # factor for time limits

# --- a program on Verbena: "${run[@]}" PROGRAM ARGS; in sanitizer builds with the sanitizer's library first ---
# --- "${own[@]}" SCRIPT ARGS: a script that starts programs of this build, which are linked with the sanitizer's library ---
run=("$VERBENA" run)
own=("${run[@]}")
lib_dir=$BUILD/src/abi
if nm -D "$lib_dir/libibverbs.so.1" 2>/dev/null | grep -q __asan_init; then
	SLOW=4
	sanitizer_says="log_path=$work/sanitizer:exitcode=99"
	cat >"$work/broker" <<-EOF
		#!/bin/sh
		ASAN_OPTIONS=$sanitizer_says UBSAN_OPTIONS=print_stacktrace=1:$sanitizer_says exec "$BUILD/src/broker/verbena-broker" "\$@"
	EOF
	chmod 755 "$work/broker"
	export VERBENA_BROKER=$work/broker
	own=(env ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:$sanitizer_says
		UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:$sanitizer_says)
	run=("${own[@]}" LD_PRELOAD="$(gcc -print-file-name=libasan.so)" "$VERBENA" run --no-shim)
fi
# opensm frees a request in the thread that has its reply, perhaps before sendmsg(2) has returned in the thread that has sent it.
# The sanitizer looks at the bytes only after that call
opensm=("${run[@]/#ASAN_OPTIONS=/ASAN_OPTIONS=intercept_send=0:}" opensm)
sanitized() { [ $SLOW != 1 ]; }

# --- one line for each case ---
# check SENTENCE COMMAND ARGS…: ok if it succeeds; what it said is shown if not. AGAIN: set where one end is an
# emulated guest, or has a timer that a busy machine may miss; what fails is tried once more, and the run says so. BETWEEN:
# what is to be done before that. said_lines: how much of what it said is shown, as tail(1) counts
check() {
	local sentence=$1 since=${EPOCHREALTIME/./} status=0
	shift
	"$@" >"$work/said" 2>&1 || status=$?
	if [ $status != 0 ] && [ -n "${AGAIN:-}" ]; then
		echo "# once more: $sentence (status $status)"
		sed 's/^/#	/' "$work/said" | tail -150
		[ -z "${BETWEEN:-}" ] || $BETWEEN
		status=0
		"$@" >"$work/said" 2>&1 || status=$?
	fi
	if [ $status = 0 ]; then
		echo "ok $sentence${VERBENA_TEST_TIMES:+ ($(((${EPOCHREALTIME/./} - since) / 1000)) ms)}"
	else
		echo "not ok $sentence (status $status)"
		sed 's/^/	/' "$work/said" | tail -n "${said_lines:-150}"
		failed=$((failed + 1))
	fi
}

skip() { # SENTENCE REASON
	echo "skip $1: $2"
}

# need PROGRAM…: skips the script if one of them is missing
need() {
	local p
	for p; do
		command -v "$p" >/dev/null || { skip "$(basename "$0" .sh)" "$p is not installed"; exit 0; }
	done
}

# --- waiting, with a limit. The loop itself starts no process: on some virtual machines each costs 10 ms ---
# pause SECONDS
pause() {
	read -rt "$1" <>"$work/.pause" 2>/dev/null
	[ $? -gt 128 ] || sleep "$1" # the directory has gone
}

# wait_for SECONDS COMMAND ARGS…: until it succeeds
wait_for() {
	local end=$((SECONDS + $1 * SLOW))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		pause 0.05
	done
}

gone() { # PID: it has ended, or is a zombie
	local stat=
	read -r stat 2>/dev/null <"/proc/$1/stat"
	stat=${stat##*) }
	[ -z "$stat" ] || [ "${stat:0:1}" = Z ]
}

listens() { # PORT
	local hex
	printf -v hex %04X "$1"
	grep -qhi "^ *[0-9]*: [0-9A-F]*:$hex [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# A port without a listener, below the kernel's ephemeral ports
free_port() {
	port=$((10000 + (RANDOM * 32768 + RANDOM) % 20000))
	while listens "$port"; do port=$((port + 1)); done
}

# --- a server and a client of one program ---
HOST=127.0.0.1
LIMIT=100 # seconds for each program
# start_server PROGRAM ARGS…: in the background; sets $port and $server, which is the pid of timeout (it passes signals on)
# Empty the output file first, here and wherever something waits for a background program's output: the program's file
# is truncated only when it starts
start_server() {
	free_port
	rm -f "$work/server.out"
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "$@" -p "$port" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 server_up
}
server_up() { listens "$port" || gone "$server"; }

# start_client PROGRAM ARGS…: in the background; sets $client
start_client() {
	rm -f "$work/client.out"
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "$@" -p "$port" "$HOST" >"$work/client.out" 2>&1 </dev/null &
	client=$!
}

# The program itself, below timeout and other wrappers
program_of() {
	local pid=$1 child
	while child=$(pgrep -o -P "$pid"); do pid=$child; done
	echo "$pid"
}

die() { # PID…
	local p
	for p; do
		kill -9 "$p" 2>/dev/null
		wait "$p" 2>/dev/null
	done
}

said_by_both() {
	echo "--- server"; tail -12 "$work/server.out"
	echo "--- client"; tail -12 "$work/client.out"
}

# pair PROGRAM ARGS…: both ends succeed
pair() {
	local s c
	start_server "$@" || { said_by_both; return 1; }
	start_client "$@"
	wait "$client"
	c=$?
	[ $c = 0 ] || wait_for 3 gone "$server" || kill "$server"
	wait "$server"
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server ended with $s, client with $c: $*"
	said_by_both
	return 1
}

# --- the end: no process of ours remains, and the sanitizers reported nothing ---
brokers() { # pids of the brokers of this script's runtime directory
	local p environ
	for p in $(pgrep -x verbena-broker); do
		environ=()
		{ mapfile -d '' environ <"/proc/$p/environ"; } 2>/dev/null
		[[ " ${environ[*]}" != *" VERBENA_RUNTIME=$work/"* ]] || echo "$p"
	done
}
no_broker() { [ -z "$(brokers)" ]; }
broker_gone() {
	wait_for 30 no_broker && return 0
	ps -o pid,etime,args -p "$(brokers | paste -sd,)"
	return 1
}
no_report() { ! cat "$work"/sanitizer.* 2>/dev/null; }

finish() {
	check "the broker goes when its programs have gone" broker_gone
	sanitized && check "the sanitizers have nothing to report" no_report
	exit $((failed > 0))
}

cleanup() {
	local status=$? p
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	for p in $(jobs -p); do kill "$p" 2>/dev/null; done
	wait # timeout kills processes that do not end
	for p in $(brokers); do kill "$p" 2>/dev/null; done
	wait_for 10 no_broker # the broker may still write there
	rm -rf "$work"
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

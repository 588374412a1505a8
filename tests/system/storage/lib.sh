# lib.sh - for scripts that meson starts with the programs in their arguments: a folder, targets that end with the script, ok and not ok
# SPDX-License-Identifier: MIT
# sourced, not run; $target: the program verbena-target
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-storage.XXXXXX")
export VERBENA_RUNTIME=$work
# a sanitizer report is not a refusal
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}exitcode=99 UBSAN_OPTIONS=${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}exitcode=99:halt_on_error=1
pids=()
cleanup() {
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	for p in ${pids[@]+"${pids[@]}"}; do
		kill -9 "$p"
		wait "$p"
	done 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

failed=0
check() { # SENTENCE COMMAND…
	if "${@:2}" >"$work/said" 2>&1; then
		echo "ok $1"
	else
		echo "not ok $1"
		tail -20 "$work/said"
		failed=1
	fi
}
# refused COMMAND…: it fails, but not by a signal or sanitizer report
refused() {
	local status
	"$@"
	status=$?
	[ $status -gt 0 ] && [ $status -lt 99 ]
}
in_time() { # COMMAND…: within a minute
	local end=$((SECONDS + 60))
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}
runs() { kill -0 "$1" 2>/dev/null; } # PID
has_lines() { [ "$(wc -l <"$1")" -ge "$2" ]; } # FILE N

# serve FILE N ARGS…: starts a target. On return it has printed N lines to $work/FILE, or has ended. Sets $pid
serve() {
	: >"$work/$1"
	"$target" "${@:3}" >"$work/$1" 2>"$work/$1.err" &
	pid=$!
	pids+=($pid)
	in_time said_or_gone "$1" "$2"
}
said_or_gone() { has_lines "$work/$1" "$2" || ! runs $pid; }

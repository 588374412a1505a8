#!/bin/bash
# variables.sh - each VERBENA_ variable with a good, a wrong and an empty value: what is printed, and the exit status
# follows: verbena(7), ENVIRONMENT
# SPDX-License-Identifier: MIT
# usage: variables.sh VERBENA SOURCE
set -u
verbena=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export VERBENA_RUNTIME=$work/runtime
mkdir -m 700 "$VERBENA_RUNTIME"
failed=0
fail() { echo "FAILED $*"; failed=1; }

# name | good | wrong | what a wrong value prints | exit status of `verbena devices` with it
# CAPTURE, FAULT and RUNTIME are read only when a program opens a device, NODE and FABRIC_SECRET only with FABRIC, and TREE is the launcher's own
table=$(cat <<END
VERBENA_BROKER|$verbena|/nowhere/broker|the broker runs inside|0
VERBENA_BROKER_LINGER|0|1s|from 0 to 3600000|0
VERBENA_BROKER_LOG|$work/log|/nowhere/log|the broker logs nothing|0
VERBENA_CAPTURE|/nowhere/socket|||0
VERBENA_CONGESTION|system|no-such|tcp_available_congestion_control|0
VERBENA_DEVICES|roce:lo,iwarp:lo, lo|roce:lo,iwrp:lo|roce:INTERFACE and iwarp:INTERFACE|1
VERBENA_FABRIC||/nowhere/socket|no fabric answers|0
VERBENA_FABRIC_SECRET|/nowhere/secret|||0
VERBENA_FAULT|loss=0|||0
VERBENA_HARDWARE|off|no|first, only or off|0
VERBENA_LANES|64|5|power of two from 2 to 1024|0
VERBENA_LIDS|1|yes|1 or 0|0
VERBENA_LOG|warn|loud|error, warn, info or debug|0
VERBENA_MEMORY|off|on|pages or off|0
VERBENA_MPA|crc,markers|crc,mark|crc, markers and emss|0
VERBENA_NODE|host1|||0
VERBENA_RDMA|copy|fetch|copy, ring or random|0
VERBENA_RING|off|on|auto or off|0
VERBENA_RUNTIME|$VERBENA_RUNTIME|||0
VERBENA_SENDS|fetch|copy|fetch, ring or random|0
VERBENA_SRP|/nowhere|||0
VERBENA_STATS|1|yes|1 or 0|0
VERBENA_TREE|/nowhere|||0
VERBENA_WIRE|never|sometimes|auto, always or never|0
END
)

# --- the source, the manual page and this table have the same variables ---
in_table=$(cut -d'|' -f1 <<<"$table" | sort -u)
in_source=$(grep -rhoE '"VERBENA_[A-Z_]+[A-Z]"' "$source/src" --include='*.c' --include='*.h' | tr -d '"' | sort -u)
in_manual=$(grep -oE 'VERBENA_[A-Z_]+[A-Z]' "$source/man/verbena.7" | sort -u)
[ "$in_table" = "$in_source" ] || fail "src/ and this table differ: $(diff <(echo "$in_source") <(echo "$in_table"))"
[ "$in_table" = "$in_manual" ] || fail "man/verbena.7 and this table differ: $(diff <(echo "$in_manual") <(echo "$in_table"))"

# Those of other names, and of storage/: client_tools.sh has the values of VERBENA_NVME_; RS_ and RDMAV_ are rdma-core's, read as it reads them
others="HOME LD_PRELOAD PATH RDMAV_FORK_SAFE RS_INLINE RS_RQ_SIZE RS_SQ_SIZE SYSFS_PATH TERM
	VERBENA_NVME_CONTROLLER_SECRET VERBENA_NVME_SECRET VERBENA_NVME_TLS_KEY VERBENA_RUNTIME VERBENA_SRP XDG_CONFIG_HOME XDG_RUNTIME_DIR"
read_by_name=$({
	grep -rhoE '(vb_env|getenv|parse_number|from_environment)\("[A-Za-z_]+"\)' "$source/src" --include='*.c' --include='*.h' | grep -v '"VERBENA_'
	grep -rhoE '(getenv|from_environment)\("[A-Za-z_]+"\)' "$source/storage" --include='*.c' --include='*.h'
} | sed 's/.*("\(.*\)")/\1/' | sort -u)
[ "$(tr -s ' \t\n' '\n' <<<"$others" | sort -u)" = "$read_by_name" ] || fail "variables of other names: $(diff <(tr -s ' \t\n' '\n' <<<"$others" | sort -u) <(echo "$read_by_name"))"

# --- each value ---
try() { # STATUS VARIABLE=VALUE: the output goes to $work/err
	timeout 60 env "$2" "$verbena" devices >"$work/out" 2>"$work/err" </dev/null
	local status=$?
	[ $status = "$1" ] || fail "$2: exit status $status, not $1: $(cat "$work/err")"
}
silent() { # WHAT
	[ ! -s "$work/err" ] || fail "$1 prints: $(cat "$work/err")"
}
while IFS='|' read -r name good wrong said status; do
	try 0 "$name=$good"
	silent "$name=$good"
	try 0 "$name="
	silent "$name="
	[ -n "$wrong" ] || continue
	try "$status" "$name=$wrong"
	[ "$(wc -l <"$work/err")" = 1 ] || fail "$name=$wrong is not named in one line: $(cat "$work/err")"
	grep -qF "$name=\"$wrong\"" "$work/err" || fail "$name=$wrong is not named: $(cat "$work/err")"
	grep -qF "$said" "$work/err" || fail "$name=$wrong: '$said' is missing: $(cat "$work/err")"
done <<<"$table"

try 1 VERBENA_DEVICES=iwrp:lo
grep -qF '"iwrp:lo"' "$work/err" || fail "VERBENA_DEVICES=iwrp:lo: the word is not named"
try 0 "VERBENA_LANES=$(printf 'x%.0s' {1..5000})"
[ "$(wc -c <"$work/err")" -lt 512 ] || fail "a long value is printed whole"
try 0 VERBENA_LOG=$'a\e[31m\nb'
grep -q $'\e' "$work/err" && fail "a control character of a value is printed"

# --- a program names them once, the launcher leaves it to the program ---
if command -v ibv_devices >/dev/null; then
	VERBENA_LANES=7 VERBENA_WIRE=up timeout 60 "$verbena" run ibv_devices >/dev/null 2>"$work/err"
	[ "$(grep -c VERBENA_LANES "$work/err")$(grep -c VERBENA_WIRE "$work/err")" = 11 ] || fail "ibv_devices does not name each once: $(cat "$work/err")"
fi

# --- a runtime directory that cannot be used: the device is not opened, and one line says why ---
if command -v ibv_rc_pingpong >/dev/null; then
	for dir in /dev/null /nowhere/runtime; do
		VERBENA_RUNTIME=$dir timeout 60 "$verbena" run --no-shim ibv_rc_pingpong >/dev/null 2>"$work/err" </dev/null && fail "VERBENA_RUNTIME=$dir: the device was opened"
		[ "$(grep -c 'set VERBENA_RUNTIME to a directory of yours' "$work/err")" = 1 ] || fail "VERBENA_RUNTIME=$dir: $(cat "$work/err")"
	done
fi

# --- output that cannot be written, and help ---
"$verbena" devices >/dev/full 2>"$work/err" && fail "devices >/dev/full exits 0"
grep -q 'No space left' "$work/err" || fail "devices >/dev/full: no reason is given"
commands=$("$verbena" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p')
[ "$(wc -l <<<"$commands")" -gt 5 ] || fail "verbena help lists no commands"
for command in $commands; do
	"$verbena" $command --help >"$work/out" 2>"$work/err" || fail "$command --help: exit status $?"
	grep -q "^Usage: verbena $command" "$work/out" || fail "$command --help prints no usage"
	[ "$(wc -l <"$work/out")" -le 24 ] || fail "$command --help does not fit a screen"
	page=$(sed -n 's/^More: man //p' "$work/out")
	[ -r "$page" ] || fail "$command --help names the page '$page', which man(1) does not find in a build tree"
done
[ $failed = 0 ] && echo ok
exit $failed

#!/bin/bash
# tour.sh - the tour in docs/tour.md: each of its steps gives what its text says, and the page is what the script writes
# see: tests/system/apps/tour/record
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need python3 tmux tshark ibv_rc_pingpong ib_write_bw unshare
sanitized && { skip "the tour" "the launcher cannot preload the sanitizer"; exit 0; }
unshare -n true 2>/dev/null || unshare -rn true 2>/dev/null || { skip "the tour" "no network namespace can be made"; exit 0; }

record() { BUILD=$BUILD TMPDIR=$work timeout -k 5 180 "$ROOT/tests/system/apps/tour/record" "$@"; }
check "each step of the tour gives what its text says" record "$work/tour.md"
check "the page that was written is complete" record --check "$work/tour.md"
check "docs/tour.md has the script's texts and commands, and what they say" record --check "$ROOT/docs/tour.md"
nothing_left() { ! compgen -G "$work/verbena-tour-*" && ! pgrep -f "$work/verbena-tour-"; }
check "the tour leaves no directory and no tmux" nothing_left

refused() { # PATTERN ARGS…: fails with one line that matches
	local pattern=$1
	shift
	! record "$@" >"$work/out" 2>"$work/err" || { echo "succeeded"; return 1; }
	cat "$work/err"
	[ "$(wc -l <"$work/err")" -ge 1 ] && head -1 "$work/err" | grep -qE "$pattern" && ! grep -q Traceback "$work/err"
}
sed 's/^roce_lo  *lo  *ACTIVE/roce_lo lo DOWN/' "$ROOT/docs/tour.md" >"$work/changed.md"
check "an output that is not what the text says is seen" refused '^record: `verbena devices`: no line matches' --check "$work/changed.md"
sed 's/^A rule makes something/A rule makes nothing/' "$ROOT/docs/tour.md" >"$work/changed.md"
check "a text that was changed by hand is seen" refused 'is not what tests/system/apps/tour/record writes' --check "$work/changed.md"
mkdir "$work/fake"
printf '#!/bin/sh\nexit 0\n' >"$work/fake/verbena"
chmod 755 "$work/fake/verbena"
fails_at_once() { BUILD=$work/fake refused '^record: `verbena devices`: no line matches' "$work/none.md" && [ ! -e "$work/none.md" ]; }
check "a step that fails is named, and no page is written" fails_at_once
finish

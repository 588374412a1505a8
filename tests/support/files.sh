# files.sh - the files that the checks of style look at: those that git knows, and new ones that it does not ignore
# SPDX-License-Identifier: MIT
# sourced, not run
files() { # [PATTERN…]: git's patterns, as in files '*.c' '*.h'
	git ls-files -co --exclude-standard -- "$@" | sort -u | while IFS= read -r f; do [ ! -f "$f" ] || printf '%s\n' "$f"; done
}

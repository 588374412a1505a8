#!/bin/bash
# environment.sh - the environment is looked at in one place, which knows when not to
# see: src/util/env.h
# SPDX-License-Identifier: MIT
# usage: environment.sh SRC
set -u
found=$(grep -rnE '\b(secure_)?getenv *\(|\benviron\b' "$1" --include='*.c' --include='*.h' |
	grep -vE '^[^:]*/(util/env\.[ch]|broker/client/spawn\.c|rsocket/preload/preload_config\.c):')
# preload_config.c is in a library that no program with privileges loads; spawn.c makes the broker's environment
[ -z "$found" ] && exit 0
echo "FAILED: only util/env.h may ask for a variable (vb_env):"
echo "$found"
exit 1

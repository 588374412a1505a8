#!/bin/bash
# environment.sh - only util/env.h reads the environment, and it refuses in privileged programs
# see: src/util/env.h
# SPDX-License-Identifier: MIT
# usage: environment.sh SRC
set -u
found=$(grep -rnE '\b(secure_)?getenv *\(|\benviron\b' "$1" --include='*.c' --include='*.h' |
	grep -vE '^[^:]*/(util/env\.[ch]|broker/client/spawn\.c|rsocket/preload/preload_config\.c):')
# privileged programs do not load the library of preload_config.c; spawn.c makes the broker's environment
[ -z "$found" ] && exit 0
echo "FAILED: only util/env.h may ask for a variable (vb_env):"
echo "$found"
exit 1

#!/bin/bash
# musl.sh - with another C library: wire formats pass their units, and the engine and what it stands on compile
# follows: musl-gcc(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need musl-gcc
sanitized && { skip "musl" "it has no sanitizer's library"; exit 0; }

# Linux's headers and the formats of rdma-core's; no header of glibc
mkdir "$work/include"
for d in linux asm-generic rdma infiniband; do ln -s "/usr/include/$d" "$work/include/$d"; done
for d in /usr/include/*-linux-gnu/asm /usr/include/asm; do [ ! -d "$d" ] || { ln -s "$d" "$work/include/asm"; break; }; done
flags=(-std=gnu17 -D_GNU_SOURCE -O1 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -isystem "$work/include" "-I$ROOT/src" '-DVB_VERSION="musl"' '-DVB_LIBDIR=""')

formats() {
	local f
	mkdir "$work/objects"
	for f in "$ROOT"/src/frame/*.c "$ROOT/tests/unit/frame/reference.c"; do
		musl-gcc "${flags[@]}" -c -o "$work/objects/$(basename "$f" .c).o" "$f" || return 1
	done
}
unit() { # NAME
	musl-gcc -static "${flags[@]}" -o "$work/unit" "$ROOT/tests/unit/frame/$1_test.c" "$work"/objects/*.o && timeout 100 "$work/unit"
}
compiles() { # FOLDER
	local f status=0
	for f in "$ROOT/src/$1"/*.c "$ROOT/src/$1"/*/*.c; do
		[ ! -f "$f" ] || musl-gcc "${flags[@]}" -fsyntax-only "$f" || status=1
	done
	return $status
}
check "src/frame compiles with musl, without a warning" formats
for u in cursor icrc message net opcode packet psn; do check "with musl: the unit frame-$u" unit $u; done
check "src/engine compiles with musl, without a warning" compiles engine
check "src/net compiles with musl, without a warning" compiles net
check "src/path compiles with musl, without a warning" compiles path
finish

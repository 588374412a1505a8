#!/bin/bash
# big-endian.sh - runs the tests of this folder on an emulated s390x, without ISA-L
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")"
skip() {
	echo "skipped: $*"
	exit 77
}
command -v s390x-linux-gnu-gcc >/dev/null || skip "no cross compiler (Debian: gcc-s390x-linux-gnu libc6-dev-s390x-cross)"
command -v qemu-s390x >/dev/null || skip "no emulator (Debian: qemu-user)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for t in *_test.c; do
	s390x-linux-gnu-gcc -std=gnu17 -O2 -static -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers \
		-Wno-sign-compare -Werror -I../../../src -o "$work/$t.bin" "$t" reference.c ../../../src/frame/*.c
	qemu-s390x "$work/$t.bin" >"$work/out" || {
		cat "$work/out"
		echo "$t failed" >&2
		exit 1
	}
	echo "ok ${t%_test.c}: $(wc -l <"$work/out")"
done

#!/bin/sh
# capture.sh - the collector survives a program that sends it garbage, and its file is still a capture file
# see: capture.c
# SPDX-License-Identifier: MIT
# usage: capture.sh VERBENA PROGRAM
verbena=$1 program=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
VERBENA_RUNTIME=$out/run
export VERBENA_RUNTIME
mkdir -m 700 "$VERBENA_RUNTIME"
timeout 200 "$verbena" run --no-shim --capture "$out/file" "$program" 2>"$out/err" || { echo "status $?"; tail -5 "$out/err"; exit 1; }
tail -1 "$out/err" | grep -q 'frames captured' || { tail -5 "$out/err"; exit 1; }
# the blocks are whole: their lengths stand at both ends
python3 - "$out/file" <<'PY'
import struct, sys
data = open(sys.argv[1], "rb").read()
at = blocks = 0
while at < len(data):
    length = struct.unpack_from("<I", data, at + 4)[0]
    assert length >= 12 and length % 4 == 0 and struct.unpack_from("<I", data, at + length - 4)[0] == length
    at, blocks = at + length, blocks + 1
assert at == len(data) and blocks > 2, blocks
PY

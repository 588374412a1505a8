#!/usr/bin/env python3
# fpdus.py - counts the FPDUs of iWARP streams in a capture by opcode, and checks lengths, markers and CRCs
# follows: RFC 5044, 4 (markers, CRC, padding) and 7.1. Shares no code with src/frame
# SPDX-License-Identifier: MIT
# usage: fpdus.py CAPTURE   prints "OPCODE COUNT" and, at the end, "crc N", "markers N"
import collections
import struct
import subprocess
import sys

table = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ 0x82F63B78 * (n & 1)
    table.append(n)


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = c >> 8 ^ table[(c ^ b) & 0xFF]
    return c ^ 0xFFFFFFFF


def streams(path):
    """The bytes that each end of each connection has sent, in order and without repetitions."""
    fields = ["tcp.stream", "ip.src", "ipv6.src", "tcp.srcport", "tcp.seq", "tcp.payload"]
    command = ["tshark", "-n", "-r", path, "-Y", "tcp.len > 0", "-T", "fields", "-E", "separator=;"]
    for f in fields:
        command += ["-e", f]
    ends = collections.defaultdict(lambda: collections.defaultdict(bytearray))
    pieces = []
    for line in subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.splitlines():
        number, v4, v6, port, seq, payload = line.split(";")
        pieces.append((int(number), (v4 or v6, port), int(seq) - 1, bytes.fromhex(payload.replace(":", ""))))
    for number, end, at, data in sorted(pieces):
        have = ends[number][end]
        if at > len(have):
            sys.exit("the capture has a hole")
        have[at:at + len(data)] = data
    return ends


def frame(data):
    """The MPA frame at the start: revision, flags and length."""
    if data[:16] not in (b"MPA ID Req Frame", b"MPA ID Rep Frame"):
        sys.exit("there is no MPA frame")
    flags, revision, rest = struct.unpack(">BBH", data[16:20])
    return flags, revision, 20 + rest


def walk(data, crc, markers, seen):
    """Parses FPDUs up to the end of the stream."""
    at = 0
    while at < len(data):
        whole, marks, plain = at, [], bytearray()

        def take(n, at, start):
            while n:
                if markers and at % 512 == 0:
                    marks.append((at, struct.unpack(">HH", data[at:at + 4])))
                    at += 4
                    continue
                plain.append(data[at])
                at += 1
                n -= 1
            return at
        at = take(2, at, whole)
        length = struct.unpack(">H", plain[:2])[0]
        start = whole + 4 if markers and whole % 512 == 0 else whole
        at = take(length + -(2 + length) % 4, at, whole)
        covered = data[whole:at]
        if any(plain[2 + length:]):
            sys.exit("pad that is not zeros")
        # a marker may precede the CRC, which then covers it
        if markers and at % 512 == 0:
            covered += data[at:at + 4]
        tail = len(plain)
        at = take(4, at, whole)
        if at > len(data):
            sys.exit("the last FPDU is cut off")
        if crc:
            if struct.unpack("<I", plain[tail:])[0] != crc32c(covered):
                sys.exit(f"wrong CRC at {whole} of the stream")
            seen["crc"] += 1
        for where, (zero, pointer) in marks:
            if zero or pointer != max(where - start, 0):
                sys.exit(f"the marker at {where} says {pointer}, its FPDU begins at {start}")
            seen["markers"] += 1
        seen[plain[3] & 15] += 1


def main():
    seen = collections.Counter()
    for ends in streams(sys.argv[1]).values():
        frames = {end: frame(data) for end, data in ends.items()}
        if len(frames) != 2:
            sys.exit("one end said nothing")
        crc = any(flags & 0x40 for flags, _, _ in frames.values())
        for end, data in ends.items():
            other = next(e for e in frames if e != end)
            seen[f"revision{frames[end][1]}"] += 1
            walk(bytes(data[frames[end][2]:]), crc, frames[other][0] & 0x80, seen)
    for what, n in sorted(seen.items(), key=str):
        print(what, n)


main()

#!/usr/bin/env python3
# frames.py - reads a capture file of verbena, independently of its code: blocks, IP, ICRC, PSNs
# follows: draft-ietf-opsawg-pcapng; IBA volume 1, annex A17 (RoCEv2)
# SPDX-License-Identifier: MIT
"""usage: frames.py FILE [MTU]. Prints "OPCODE COUNT" for each opcode, "interface NAME", "dropped N", "payload SUM BYTES".
Exit status 1 if a block, a checksum, an ICRC, or the order of PSNs is wrong. With MTU, the order of PSNs is checked."""
import struct
import sys
import zlib

HEADERS = {0x06: 16, 0x0A: 16, 0x0B: 20, 0x0C: 16, 0x0D: 4, 0x0F: 4, 0x10: 4, 0x11: 4, 0x12: 12, 0x13: 28, 0x14: 28,
           0x03: 4, 0x05: 4, 0x09: 4, 0x16: 4, 0x17: 4, 0x26: 16, 0x2A: 16, 0x2B: 20, 0x23: 4, 0x25: 4, 0x29: 4,
           0x64: 8, 0x65: 12}
# XRC: RC's opcodes at 0xA0, with an XRCETH in each request
HEADERS.update({0xA0 + op: HEADERS.get(op, 0) + (0 if 0x0D <= op <= 0x12 else 4) for op in range(0x18)})


def options(data):
    while len(data) >= 4:
        code, length = struct.unpack_from("<HH", data)
        if not code:
            break
        yield code, data[4:4 + length]
        data = data[4 + (length + 3) // 4 * 4:]


def blocks(data):
    while data:
        kind, length = struct.unpack_from("<II", data)
        assert length % 4 == 0 and length <= len(data), "a block is cut"
        assert struct.unpack_from("<I", data, length - 4)[0] == length, "the lengths of a block differ"
        yield kind, data[8:length - 4]
        data = data[length:]


def icrc_ok(ip, udp):
    masked = bytearray(ip)
    if ip[0] >> 4 == 4:
        masked[1], masked[8], masked[10:12] = 0xFF, 0xFF, b"\xff\xff"
    else:
        masked[0] |= 0x0F
        masked[1:4], masked[7] = b"\xff\xff\xff", 0xFF
    body = bytearray(udp)
    body[6:8] = b"\xff\xff"  # UDP checksum
    body[12] = 0xFF  # FECN, BECN
    crc = zlib.crc32(b"\xff" * 8 + bytes(masked) + bytes(body[:-4]))
    return struct.pack("<I", crc) == bytes(body[-4:])


def sum_ok(data):
    total = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


class Reader:
    def __init__(self, mtu):
        self.mtu, self.counts, self.names, self.dropped = mtu, {}, [], 0
        self.expected, self.payload, self.bytes, self.last, self.whole = {}, 0, 0, 0, 0

    def packet(self, body):
        interface, high, low, captured, length = struct.unpack_from("<IIIII", body)
        frame, rest = body[20:20 + captured], body[20 + (captured + 3) // 4 * 4:]
        opts = dict(options(rest))
        time = high << 32 | low
        assert interface < len(self.names) and time >= self.last and 2 in opts and 1 in opts, "packet block"
        self.last = time
        ip = frame[14:34] if frame[12] == 8 else frame[14:54]
        if captured < length:
            self.counts["cut"] = self.counts.get("cut", 0) + 1
            return
        if ip[0] >> 4 == 4:
            assert sum_ok(ip), "the IP checksum is wrong"
            assert struct.unpack_from(">H", ip, 2)[0] == length - 14, "the IP length is wrong"
        if (ip[9] if ip[0] >> 4 == 4 else ip[6]) != 17:
            self.counts["tcp"] = self.counts.get("tcp", 0) + 1
            return
        udp = frame[14 + len(ip):]
        assert struct.unpack_from(">H", udp, 4)[0] == len(udp), "the UDP length is wrong"
        if b"wrong ICRC" in opts[1]:
            self.counts["bad"] = self.counts.get("bad", 0) + 1
            return
        assert icrc_ok(ip, udp), "an ICRC is wrong"
        self.whole += 1
        self.transport(udp[8:-4])

    def transport(self, bth):
        op, pad = bth[0], bth[1] >> 4 & 3
        qp, psn = struct.unpack_from(">I", bth, 4)[0] & 0xFFFFFF, struct.unpack_from(">I", bth, 8)[0] & 0xFFFFFF
        self.counts[op] = self.counts.get(op, 0) + 1
        head = 12 + HEADERS.get(op, 0)
        data = bth[head:len(bth) - pad]
        if qp != 1:
            self.payload, self.bytes = zlib.crc32(data, self.payload), self.bytes + len(data)
        xrc = op >= 0xA0
        op -= 0xA0 if xrc else 0
        request = op <= 0x0C or op in (0x13, 0x14, 0x16, 0x17) or 0x20 <= op < 0x40
        if not request:
            return
        if qp in self.expected and self.mtu:
            assert psn == self.expected[qp], "PSN %#x of QP %#x, expected %#x" % (psn, qp, self.expected[qp])
        step = 1
        if op == 0x0C:
            step = max(1, -(-struct.unpack_from(">I", bth, 28 if xrc else 24)[0] // (self.mtu or 4096)))
        self.expected[qp] = psn + step & 0xFFFFFF


def main():
    reader = Reader(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    for kind, body in blocks(data):
        if kind == 1:
            opts = dict(options(body[8:]))
            assert opts[9] == b"\x09", "times are not in ns"
            reader.names.append(opts[2].decode())
        elif kind == 6:
            reader.packet(body)
        elif kind == 5:
            reader.dropped += struct.unpack("<Q", dict(options(body[12:]))[5])[0]
    for op in sorted(reader.counts, key=str):
        print("%s %d" % (op if isinstance(op, str) else "%#04x" % op, reader.counts[op]))
    for name in reader.names:
        print("interface", name)
    print("dropped", reader.dropped)
    print("payload", reader.payload, reader.bytes)


main()

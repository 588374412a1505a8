# reserve.py - a host that registers, reserves, reads and writes, by NVMe over TCP
# follows: NVMe over Fabrics 1.1; NVMe/TCP transport (TP 8000); NVM Express Base 1.4, 6.10 to 6.13
# SPDX-License-Identifier: MIT
# reserve.py PORT NQN HOST COMMAND…: prints the result of each command on a line. HOST is a number; commands are
# register:KEY, acquire:KEY:TYPE, preempt:KEY:VICTIM:TYPE, clear:KEY, read, write, report. A command that this path cannot execute for
# now (a status of type 3) is repeated for a minute
import socket, struct, sys, time

NAMES = {0: "good", 0x83: "conflict"}


class Queue:
    def __init__(self, port, nqn, host, qid, controller, source="127.0.0.1"):
        self.s = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
        self.s.settimeout(60)
        self.cid = 0
        self.s.sendall(struct.pack("<BBBBIHBBI", 0, 0, 128, 0, 128, 0, 0, 0, 0) + bytes(112))
        assert self.pdu()[0] == 1
        data = bytearray(1024)
        data[0:16] = bytes([host]) * 16 if host < 256 else host.to_bytes(2, "big") * 8
        struct.pack_into("<H", data, 16, controller)
        data[256:256 + len(nqn)] = nqn.encode()
        name = b"nqn.2026-01.test:host%d" % host
        data[512:512 + len(name)] = name
        self.controller = self.do(0x7F, nsid=1, cdw=[qid << 16, 31], send=data)[1] & 0xFFFF

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.s.recv(n - len(data))
            assert more, "the connection has ended"
            data += more
        return data

    def pdu(self):
        head = self.exactly(8)
        return head[0], head[1], head[2], head + self.exactly(struct.unpack("<I", head[4:])[0] - 8)

    # With nsid=1 a Fabrics command is Connect: the type is in its place
    def post(self, opcode, nsid=1, cdw=(), send=None, length=0):
        self.cid += 1
        sgl = struct.pack("<QI3xB", 0, len(send), 0x01) if send is not None else struct.pack("<QI3xB", 0, length, 0x5A)
        sqe = struct.pack("<BBHI16x", opcode, 0x40, self.cid, nsid) + sgl + struct.pack("<6I", *(list(cdw) + [0] * 6)[:6])
        body = bytes(send or b"")
        self.s.sendall(struct.pack("<BBBBI", 4, 0, 72, 72 if body else 0, 72 + len(body)) + sqe + body)

    # returns status, result, data
    def command(self, *args, **kwargs):
        self.post(*args, **kwargs)
        data = b""
        while True:
            kind, flags, offset, pdu = self.pdu()
            if kind == 7:
                data += pdu[pdu[3]:]
                if flags & 8:
                    return 0, 0, data
            elif kind == 5:
                result, _, _, _, status = struct.unpack("<QHHHH", pdu[8:24])
                return status >> 1 & 0x7FF, result, data
            else:
                sys.exit("a PDU of type %d" % kind)

    def do(self, *args, **kwargs):
        answer = self.command(*args, **kwargs)
        assert not answer[0], "status %#x" % answer[0]
        return answer


def report(io):
    status, _, data = io.command(0x0E, cdw=[1023, 1], length=4096)
    if status:
        return status, ""
    entries = [struct.unpack_from("<HB5xQ", data, 64 + 64 * i) + (data[80 + 64 * i],) for i in range(data[5])]
    return 0, " type=%d persists=%d" % (data[4], data[9]) + "".join(" host%d=%d%s" % (e[3], e[2], "*" * e[1]) for e in entries)


def attempt(io, word):
    verb, *n = word.split(":")
    n = [int(x) for x in n]
    more = ""
    if verb == "register":
        status = io.command(0x0D, cdw=[3 << 30], send=struct.pack("<QQ", 0, n[0]))[0]
    elif verb == "acquire":
        status = io.command(0x11, cdw=[n[1] << 8], send=struct.pack("<QQ", n[0], 0))[0]
    elif verb == "preempt":
        status = io.command(0x11, cdw=[2 | n[2] << 8], send=struct.pack("<QQ", n[0], n[1]))[0]
    elif verb == "clear":
        status = io.command(0x15, cdw=[1], send=struct.pack("<Q", n[0]))[0]
    elif verb == "write":
        status = io.command(0x01, cdw=[0, 0, 7], send=bytes(4096))[0]
    elif verb == "read":
        status = io.command(0x02, cdw=[0, 0, 7], length=4096)[0]
    else:
        status, more = report(io)
    return status, more


def run(io, word):
    end = time.monotonic() + 60
    status, more = attempt(io, word)
    while status >> 8 == 3 and time.monotonic() < end:
        time.sleep(0.2)
        status, more = attempt(io, word)
    print("%s: %s%s" % (word.split(":")[0], NAMES.get(status, "%#x" % status), more))


def connect(port, nqn, host, source="127.0.0.1"):
    admin = Queue(port, nqn, host, 0, 0xFFFF, source)
    admin.do(0x7F, nsid=0, cdw=[0, 0x14, 0x460001])
    return admin, Queue(port, nqn, host, 1, admin.controller, source)


if __name__ == "__main__":
    admin, io = connect(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    for word in sys.argv[4:]:
        run(io, word)

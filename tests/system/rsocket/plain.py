# plain.py - a server and a client that only use sockets; run with the preload library on both sides
# SPDX-License-Identifier: MIT
# plain.py serve|call HOW [ADDRESS]   HOW: block, select, poll, epoll, edge, aio, uv, fork, forks, dgram
import asyncio, hashlib, os, select, socket, sys

PORT, SIZE, MANY = 7475, 300_000, 6
data = b"".join(hashlib.sha256(i.to_bytes(4, "big")).digest() for i in range(SIZE // 32))


def echo_blocking(c):
    while True:
        b = c.recv(20000)
        if not b:
            break
        c.sendall(b)
    c.close()


def echo_ready(c, wait):
    c.setblocking(False)
    out, end = b"", False
    while not end or out:
        r, w = wait(c, not end, bool(out))
        if r:
            try:
                while True:
                    b = c.recv(20000)
                    if not b:
                        end = True
                        break
                    out += b
            except BlockingIOError:
                pass
        try:
            while out:
                out = out[c.send(out):]
        except BlockingIOError:
            pass
    c.close()


def by_select(c, r, w):
    a, b, _ = select.select([c] if r else [], [c] if w else [], [], 30)
    assert a or b
    return a, b


def by_poll(c, r, w):
    p = select.poll()
    p.register(c, (select.POLLIN if r else 0) | (select.POLLOUT if w else 0))
    got = p.poll(30000)
    assert got
    return got[0][1] & (select.POLLIN | select.POLLHUP), got[0][1] & select.POLLOUT


class by_epoll:
    def __init__(self, edge):
        self.e, self.edge, self.mask = select.epoll(), edge, None

    def __call__(self, c, r, w):
        m = (select.EPOLLIN if r or self.edge else 0) | (select.EPOLLOUT if w or self.edge else 0)
        m |= select.EPOLLET if self.edge else 0
        if self.mask is None:
            self.e.register(c, m)
        elif m != self.mask:
            self.e.modify(c, m)
        self.mask = m
        got = self.e.poll(30)
        assert got
        return got[0][1] & (select.EPOLLIN | select.EPOLLHUP), got[0][1] & select.EPOLLOUT


def serve(how):
    l = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if how == "dgram" else socket.SOCK_STREAM)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind((sys.argv[3] if len(sys.argv) > 3 else "0.0.0.0", PORT))
    if how == "dgram":
        for _ in range(20):
            b, a = l.recvfrom(3000)
            l.sendto(b, a)
        return
    l.listen(5)
    print("listening", flush=True)
    if how == "forks":  # a child for each connection
        for _ in range(MANY):
            c, a = l.accept()
            if os.fork() == 0:
                l.close()
                echo_blocking(c)
                os._exit(0)
            c.close()
        os._exit(any(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(MANY)))
    c, a = l.accept()
    if how == "fork":
        if os.fork() == 0:
            l.close()
            echo_blocking(c)
            os._exit(0)
        c.close()
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if how == "block":
        echo_blocking(c)
    else:
        echo_ready(c, {"select": by_select, "poll": by_poll}.get(how) or by_epoll(how == "edge"))


def call(how, to):
    if how == "dgram":
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect((to, PORT))
        s.settimeout(20)
        for i in range(20):
            b = data[i:i + 1 + 100 * i]
            s.send(b)
            assert s.recv(3000) == b, i
        return
    if how == "forks":  # all connections are made before one is used, and the last is used first
        many = [socket.create_connection((to, PORT)) for _ in range(MANY)]
        for s in reversed(many):
            s.sendall(data[:20000])
        for s in many:
            got = b""
            while len(got) < 20000:
                b = s.recv(65536)
                assert b, len(got)
                got += b
            assert got == data[:20000]
            s.close()
        return
    s = socket.create_connection((to, PORT), 30)
    s.settimeout(30)
    got = b""
    for i in range(0, len(data), 50000):
        n = s.sendto(data[i:i + 50000], (to, PORT))  # TCP ignores the address
        s.sendall(data[i + n:i + 50000])
        while len(got) < min(i + 50000, len(data)):
            b = s.recv(65536)
            assert b, len(got)
            got += b
    assert got == data
    s.shutdown(socket.SHUT_WR)
    assert s.recv(10) == b""
    s.close()


def main():
    mode, how = sys.argv[1], sys.argv[2]
    if how == "uv":
        import uvloop

        uvloop.install()
    if how in ("aio", "uv"):
        asyncio.run(aio_serve() if mode == "serve" else aio_call(sys.argv[3]))
    elif mode == "serve":
        serve(how)
    else:
        call(how, sys.argv[3])
    print(mode, how, "ok")


async def aio_serve():
    done = asyncio.Event()

    async def echo(r, w):
        while b := await r.read(20000):
            w.write(b)
            await w.drain()
        w.close()
        await w.wait_closed()
        done.set()

    async with await asyncio.start_server(echo, "0.0.0.0", PORT):
        await asyncio.wait_for(done.wait(), 60)


async def aio_call(to):
    r, w = await asyncio.open_connection(to, PORT)
    w.write(data)
    assert await asyncio.wait_for(r.readexactly(len(data)), 30) == data
    w.write_eof()
    assert await r.read(10) == b""
    w.close()
    await w.wait_closed()


main()

#!/usr/bin/env python3
# between.py - relays TCP connections and ends them in the middle of a message
# follows: tcp(7)
# SPDX-License-Identifier: MIT
# usage: between.py LISTEN-PORT ADDRESS PORT BYTES reset|close   after BYTES bytes from the client, or, if negative,
# from the server
import selectors
import socket
import struct
import sys

listen_port, address, port, limit, how = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
listener = socket.create_server((address, listen_port), reuse_port=True)
client, _ = listener.accept()
server = socket.create_connection((address, port))
watched, left = (client, limit) if limit > 0 else (server, -limit)
other = {client: server, server: client}
ready = selectors.DefaultSelector()
for s in other:
    ready.register(s, selectors.EVENT_READ)
while left:
    for key, _ in ready.select():
        data = key.fileobj.recv(min(65536, left) if key.fileobj is watched else 65536)
        if not data:
            sys.exit("an end has gone before its time")
        other[key.fileobj].sendall(data)
        left -= len(data) if key.fileobj is watched else 0
for s in other:
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()

#!/usr/bin/python3
# holder.py - binds UDP port 4791 when it is free, like another RoCE implementation, until it is killed; prints "held"
# follows: udp(7), IBA annex A17 (the port)
# SPDX-License-Identifier: MIT
import errno
import socket
import sys
import time

end = time.monotonic() + 60  # its previous holder may take a moment to end
while True:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        s.bind(("::", 4791))
        break
    except OSError as e:
        s.close()
        if e.errno != errno.EADDRINUSE or time.monotonic() > end:
            sys.exit(f"no port: {e}")
        time.sleep(0.05)
print("held", flush=True)
time.sleep(600)

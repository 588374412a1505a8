# slow_hosts.py - five hosts ask for all that they may of an image whose OSDs are halted, and a sixth uses another namespace
# follows: man/verbena-target.8, memory
# SPDX-License-Identifier: MIT
# slow_hosts.py PORT NQN NSID OTHER PID…: OTHER is the namespace that goes on, PID the OSDs. NSID has data at its first 4 MiB
import os, signal, sys, time

from reserve import connect

MIB = 1 << 20
SECONDS = 4  # a namespace is slow after one
port, nqn, nsid, other, osds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), [int(p) for p in sys.argv[5:]]
admin, io = connect(port, nqn, 1)  # its connections live as long as both
hosts = [connect(port, nqn, 10 + i, f"127.0.0.{i + 2}") for i in range(5)]
io.s.settimeout(10)
try:
    for pid in osds:
        os.kill(pid, signal.SIGSTOP)
    for admins, queue in hosts:
        for k in range(31):
            queue.post(0x02, nsid=nsid, cdw=[k % 4 * MIB // 512, 0, MIB // 512 - 1], length=MIB)
    end = time.monotonic() + SECONDS
    time.sleep(1.5)
    n = 0
    while time.monotonic() < end:
        assert io.command(0x01, nsid=other, cdw=[0, 0, 7], send=bytes(4096))[0] == 0
        assert io.command(0x02, nsid=other, cdw=[0, 0, 255], length=256 * 512)[0] == 0
        n += 1
    print(n, "writes and reads of the other namespace")
finally:
    for pid in osds:
        os.kill(pid, signal.SIGCONT)

# many.py - 256 hosts, 256 namespaces: added and removed by the control socket, used by the hosts, in status and metrics
# follows: verbena-target(8), CONTROL SOCKET; OpenMetrics 1.0.0
# SPDX-License-Identifier: MIT
# many.py SOCKET PORT NQN [POOL]: the subsystem has the namespaces 1 and 2. The others are in memory, or images of POOL
import json, os, re, resource, socket, sys

from reserve import connect

MANY = 256
INVALID_NAMESPACE = 0x0B
path, port, nqn, pool = sys.argv[1], int(sys.argv[2]), sys.argv[3], (sys.argv[4:] or [None])[0]
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def ctl(line):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(path)
    s.sendall(line.encode() + b"\n")
    return b"".join(iter(lambda: s.recv(65536), b"")).decode()


def samples(text, name):
    return re.findall(r'^verbena_target_%s{.*?(?:nsid|host)="([^"]*)".*} ([0-9]+)$' % name, text, re.M)


def make_images():
    import rados, rbd

    with rados.Rados(conffile=os.environ["CEPH_CONF"]) as cluster, cluster.open_ioctx(pool) as io:
        for n in range(3, MANY + 1):
            rbd.RBD().create(io, f"many{n}", 65536)


if pool:
    make_images()
for n in range(3, MANY + 1):
    medium = f"backend=rbd path={pool}/many{n}" if pool else "backend=memory size=64K"
    answer = ctl(f"add {nqn} nsid={n} {medium} riops=1000")
    assert answer == "ok\n", answer
hosts = [connect(port, nqn, i + 1) for i in range(MANY)]
for i, (_, io) in enumerate(hosts):
    for k in range(2):
        assert io.command(0x02, nsid=(i + k) % MANY + 1, cdw=[0, 0, 7], length=4096)[0] == 0

status = json.loads(ctl("status"))
namespaces = next(s for s in status["subsystems"] if s["nqn"] == nqn)["namespaces"]
assert len(namespaces) == MANY and all(n["reads"] >= 2 for n in namespaces)
assert all(n["limits"]["riops"] == 1000 for n in namespaces if n["nsid"] > 2)
names = {f"nqn.2026-01.test:host{i + 1}" for i in range(MANY)}
there = [h for h in status["hosts"] if h["nqn"] in names]
assert len(there) == MANY and all(h["controllers"] == 1 and h["reads"] == 2 for h in there)

metrics = ctl("metrics")
assert len(samples(metrics, "namespace_depth")) == MANY and len(samples(metrics, "namespace_limit")) >= MANY - 2
weights = dict(samples(metrics, "host_weight"))
assert all(weights[n] == "1" for n in names)
controllers = dict(samples(metrics, "host_controllers"))
assert all(controllers[n] == "1" for n in names)
lines = [x.rpartition(" ")[0] for x in metrics.splitlines() if not x.startswith("#")]
assert len(set(lines)) == len(lines)

for n in range(3, MANY + 1):
    assert ctl(f"remove {nqn} {n}") == "ok\n"
for i, (_, io) in enumerate(hosts):
    status = io.command(0x02, nsid=i + 1, cdw=[0, 0, 7], length=4096)[0]
    assert status & 0xFF == (INVALID_NAMESPACE if i >= 2 else 0), (i, hex(status))
print(f"{MANY} hosts, {MANY} namespaces")

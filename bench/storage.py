#!/usr/bin/env -S python3 -B
# storage.py - run by storage.sh: verbena-disk and verbena-target, on one host and across a veth pair, in turns with
# peers
# see: bench/README.md, wire.py; verbena-disk(1), nbdkit-memory-plugin(1), fio(1)
# SPDX-License-Identifier: MIT
from wire import *
import wire

SIZE = 64 << 20  # bytes to read: more than a processor's caches hold
DEPTHS = ("2", "8")  # outstanding reads of 1 MiB; the best depth for each counts
NQN = "nqn.2026-01.example:bench"
SECONDS = 1
IWARP = {"VERBENA_DEVICES": f"iwarp:{wire.NAME}"}
FILE = os.path.join(os.environ.get("WIRE_WORK", "/"), "file")


def storage_tool(name):
    path = os.path.join(BUILD, "storage", name)
    if not os.access(path, os.X_OK):
        raise Failed(f"{os.path.relpath(path)} is not built (tests/install-packages build, make build)")
    return path


def processor_time(p):
    """Seconds of processor time that a process group's leader has used, in user and in kernel mode."""
    words = open(f"/proc/{p.pid}/stat").read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Served:
    """A running verbena-target on the first core, measured repeatedly with verbena-disk on the second."""

    def __init__(self, a, b, transport, *export, env=None):
        self.b, self.env = b, {**b.env, **(env or {})}
        argv = verbena(storage_tool("verbena-target"), "--listen", a.address, "--port", "0", "--nqn", NQN, "--transport", transport, *export)
        self.server = start(a.within(argv), 0, env={**a.env, **(env or {})})
        self.url = ask_line(self.server, 20)
        if not self.url.startswith("nvme+"):
            raise Failed(f"verbena-target: {self.url}")

    def ask(self, *args):
        argv = self.b.within(verbena(storage_tool("verbena-disk"), "--json", f"--seconds={SECONDS}", "--reconnect=0", *args, "bench", self.url))
        out = finish(start(argv, 1, env=self.env), SECONDS + 20, argv)
        try:
            return json.loads(out[out.index("{"):])
        except ValueError:
            raise Failed(f"verbena-disk printed no figures: {out[-200:].strip()}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.server)

    def fill(self):
        """Writes the disk first: pages that were never written share one page of zeros and are cheaper to read."""
        self.ask("--write", "--sequential", "--size=1m", "--depth=8")
        return self

    def latency(self):
        return self.ask("--depth=1")["latency_us"]["p50"]

    def iops(self):
        return self.ask("--depth=32")["iops"]

    def bandwidth(self, depth):
        """10^9 bytes per second, sequential reads of 1 MiB."""
        return self.ask("--sequential", "--size=1m", f"--depth={depth}")["mb_s"] / 1000

    def cost(self, *args):
        """Nanoseconds of the target's processor time for each KiB that was read."""
        before = processor_time(self.server)
        got = self.ask(*args)
        return (processor_time(self.server) - before) * 1e9 / (got["mb_s"] * 1e6 * got["seconds"] / 1024)

    def cost_large(self, depth):
        return self.cost("--sequential", "--size=1m", f"--depth={depth}")


class Nbd:
    """nbdkit's memory plugin on a Unix socket, and fio's nbd engine."""

    def __init__(self):
        self.socket = os.path.join(os.environ["WIRE_WORK"], "nbd")
        self.server = start(["nbdkit", "-f", "-U", self.socket, "memory", str(SIZE)], 0)
        end = time.monotonic() + 10
        while not os.path.exists(self.socket):
            if self.server.poll() is not None or time.monotonic() > end:
                finish(self.server, 0.1, ["nbdkit"])
                raise Failed("nbdkit did not start")
            time.sleep(0.01)
        self.fio("--rw=write", "--bs=1m", "--iodepth=8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.server)

    def fio(self, *args):
        argv = ["fio", "--name=nbd", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={self.socket}", f"--size={SIZE}", "--output-format=json", *args]
        out = finish(start(argv, 1), SECONDS + 20, argv)
        try:
            return json.loads(out[out.index("{"):])["jobs"][0]
        except (ValueError, KeyError, IndexError):
            raise Failed(f"fio printed no figures: {out[-200:].strip()}") from None

    def read(self, depth):
        return self.fio("--rw=randread", "--bs=4k", f"--iodepth={depth}", "--time_based", f"--runtime={SECONDS}", "--norandommap", "--randrepeat=0", "--lat_percentiles=1")["read"]

    def latency(self):
        """Measured from before the submission, in which this engine does its work, to the completion."""
        return self.read(1)["lat_ns"]["percentile"]["50.000000"] / 1000

    def iops(self):
        return self.read(32)["iops"]


def write_file():
    with open(FILE, "wb") as f:
        for _ in range(SIZE >> 20):
            f.write(os.urandom(1 << 20))


def read_file(buffers):
    """10^9 bytes per second of read(2), 1 MiB each, from the page cache."""
    return float(run(tool("read_file"), FILE, buffers, str(SECONDS), core=1, seconds=20))


def at_depths(measure):
    return [lambda d=d: measure(d) for d in DEPTHS]


def kiops(x):
    return f"{x / 1000:.0f} k/s"


def gbytes(x):
    return f"{x:.2f} GB/s"


def per_kib(x):
    return f"{x:.0f} ns/KiB"


# --- the figures ---

def small(a, _):
    heading("one host, memory: random reads of 4 KiB, beside nbdkit on a Unix socket")
    here = Loopback(a)
    with Served(here, here, "rdma", "--export", f"memory:{SIZE}").fill() as ours, Nbd() as nbd:
        got = turns(min, ours=[ours.latency], nbd=[nbd.latency])
        compare("RDMA, depth 1, latency / nbd", got, "ours", "nbd", 0.5, 0.2, usec, at_most=True)
        got = turns(max, ours=[ours.iops], nbd=[nbd.iops])
        compare("RDMA, depth 32, requests / nbd", got, "ours", "nbd", 3, 8, kiops)


def large(a, _):
    heading("one host, mapped file: sequential reads of 1 MiB, beside read(2)")
    here = Loopback(a)
    with Served(here, here, "rdma", "--export", FILE, "--mapped", "--read-only") as ours:
        got = turns(max, ours=at_depths(ours.bandwidth), read=at_depths(read_file))
    compare("RDMA, 1 MiB / read(2), page cache", got, "ours", "read", 0.5, 1, gbytes)


def kinds(a, b, *export):
    """The transports of the disk across the veth pair: name, target."""
    yield "tcp", Served(a, b, "tcp", *export)
    yield "RoCE", Served(a, b, "rdma", *export)
    try:
        yield "iWARP", Served(a, b, "rdma", *export, env=IWARP)
    except Failed as e:
        explain(e)


def wire_large(a, b):
    heading("veth, MTU 1500, mapped file: sequential reads of 1 MiB, beside iperf3")
    veth(a, b, 1500)
    with_targets = dict(kinds(a, b, "--export", FILE, "--mapped", "--read-only"))
    got = turns(max, iperf3=[lambda c=c: iperf3(a, b, SECONDS, c) / 8 for c in CONGESTION],
                **{name: at_depths(t.bandwidth) for name, t in with_targets.items()})
    for name in with_targets:
        if name != "tcp":
            compare(f"{name}, 1 MiB / iperf3, one stream", got, name, "iperf3", 0.7, 1, gbytes)
    inform("NVMe/TCP, 1 MiB", got, "tcp", gbytes)
    for t in with_targets.values():
        stop(t.server)
    unplug(a)


def cost(a, b):
    heading("veth, MTU 1500, memory: RDMA beside our own NVMe/TCP")
    veth(a, b, 1500)
    targets = {name: t.fill() for name, t in kinds(a, b, "--export", f"memory:{SIZE}")}
    rdma = [name for name in targets if name != "tcp"]
    got = turns(min, **{name: [t.latency] for name, t in targets.items()})
    for name in rdma:
        compare(f"{name}, 4 KiB, depth 1, latency", got, name, "tcp", 1, 0.5, usec, at_most=True)
    got = turns(min, **{name: at_depths(t.cost_large) for name, t in targets.items()})
    for name in rdma:
        compare(f"{name}, 1 MiB, target's processor time", got, name, "tcp", 1, 0.5, per_kib, at_most=True)
    got = turns(min, min(3, PAIRS), **{name: [lambda t=t: t.cost("--depth=32")] for name, t in targets.items()})
    for name in targets:
        inform(f"{name}, 4 KiB, depth 32, processor time", got, name, per_kib)
    for t in targets.values():
        stop(t.server)
    unplug(a)


if __name__ == "__main__":
    if "WIRE_WORK" in os.environ:
        write_file()
    run_figures("storage.sh", {"small": small, "large": large, "wire": wire_large, "cost": cost})

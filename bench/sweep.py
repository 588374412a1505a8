#!/usr/bin/env -S python3 -B
# sweep.py - run by sweep.sh: latency and bandwidth by message size, on each path beside its peers
# see: bench/README.md, sweeps.py, wire.py. Both ends have a core of their own; messages are fewer than in the rows.
# SPDX-License-Identifier: MIT
import iwarp, rsocket, storage, wire
from sweeps import *
from wire import CONGESTION, Loopback, Pair, heading, last_row, run_figures, start_perftest, unplug, veth

T_TYPICAL, MSG_RATE = 4, 4
LATENCY = (8, 64, 512, 4096, 32768, 262144)
BANDWIDTH = (64, 512, 4096, 32768, 262144, 1 << 20)
DATAGRAM, HEADERS = 65507, 28


def to_and_fro(size):
    """How many messages: about a tenth of a second."""
    return str(max(500, 20000 * 4096 // max(size, 4096)))


def many(size, total):
    return str(max(500, min(300000, total // size)))


# --- ours ---

def ours_lat(a, b, program, begin=start_perftest, env=None):
    return lambda size: last_row(program, begin(a, b, program, "-s", str(size), "-n", to_and_fro(size), env=env).result())[T_TYPICAL]


def ours_bw(a, b, program, total, begin=start_perftest, env=None):
    """10^9 bytes per second."""
    def once(size):
        rate = last_row(program, begin(a, b, program, "-s", str(size), "-n", many(size, total), env=env).result())[MSG_RATE]
        if not rate > 0:
            raise Failed(f"{program} moved nothing")
        return rate * size / 1000
    return once


# --- peers ---

def ucx(a, b, test, tls, device=None):
    """ucx_perftest: (µs one way, 10^9 bytes per second)."""
    env = {"UCX_TLS": tls, "UCX_WARN_UNUSED_ENV_VARS": "n", **({"UCX_NET_DEVICES": device} if device else {})}

    def once(size, total):
        n = to_and_fro(size) if test.endswith("lat") else many(size, total)
        out = Pair(a, b, lambda port: ["ucx_perftest", "-p", str(port)],
                   lambda port, host: ["ucx_perftest", "-p", str(port), host, "-t", test, "-s", str(size), "-n", n, "-f"], env).result()
        try:
            v = [float(x) for x in out.strip().splitlines()[-1].split()]
            return v[1], v[-1] * size / 1e9
        except (IndexError, ValueError):
            raise Failed(f"ucx_perftest printed no figures (UCX_TLS={tls})") from None
    return once


def ucx_lat(*args):
    return lambda size: ucx(*args[:2], "tag_lat", *args[2:])(size, 0)[0]


def ucx_bw(total, *args):
    return lambda size: ucx(*args[:2], "tag_bw", *args[2:])(size, total)[1]


def tcp_lat(a, b):
    return lambda size: float(Pair(a, b, lambda port: [tool("tcp_pingpong"), "serve", a.address, str(port), str(size)],
                                   lambda port, host: [tool("tcp_pingpong"), "ask", host, str(port), str(size)]).result())


def iperf3(a, b):
    """One function for each congestion control: 10^9 bytes per second of one stream, written in pieces of this size."""
    def with_(congestion):
        def once(size):
            total = max(16 << 20, min(1 << 30, size * 300000))
            out = Pair(a, b, lambda port: ["iperf3", "-s", "-1", "-p", str(port)],
                       lambda port, host: ["iperf3", "-c", host, "-p", str(port), "-n", str(total), "-l", str(size), "-J", "-C", congestion]).result()
            return iperf3_rate(out) / 8e9
        return once
    return [with_(c) for c in CONGESTION]


def memcpy(size):
    return float(run(tool("memcpy_bw"), "private", str(size), "0.1")) / 1000


# --- the paths ---

def host(a, _):
    heading("sweep: one host, shared memory")
    here = Loopback(a)
    ucx_settings = ("posix,cma,self", "sm,self")
    good = Sweep("latency, one host", "µs", min, LATENCY).add("ib_send_lat", ours_lat(here, here, "ib_send_lat"), ours=True) \
        .add("ib_write_lat", ours_lat(here, here, "ib_write_lat"), ours=True) \
        .add("UCX tag_lat, shared memory", *[ucx_lat(here, here, s) for s in ucx_settings]) \
        .add("TCP ping-pong, spinning", tcp_lat(here, here)).run()
    good &= Sweep("bandwidth, one host", "GB/s", max, BANDWIDTH).add("ib_write_bw", ours_bw(here, here, "ib_write_bw", 2 << 30), ours=True) \
        .add("ib_send_bw", ours_bw(here, here, "ib_send_bw", 2 << 30), ours=True) \
        .add("memcpy", memcpy).add("UCX tag_bw, shared memory", *[ucx_bw(2 << 30, here, here, s) for s in ucx_settings]) \
        .add("iperf3, one stream", *iperf3(here, here)).run()
    return good


def roce(a, b):
    heading("sweep: RoCE, veth, MTU 1500")
    veth(a, b, 1500)
    good = Sweep("latency, RoCE, MTU 1500", "µs", min, LATENCY).add("ib_send_lat", ours_lat(a, b, "ib_send_lat"), ours=True) \
        .add("UDP ping-pong, spinning", lambda size: wire.udp(a, b, "lat", str(size)), largest=DATAGRAM) \
        .add("UCX tcp tag_lat", ucx_lat(a, b, "tcp", wire.NAME)) \
        .add("TCP ping-pong, spinning", tcp_lat(a, b)).run()
    unplug(a)
    for mtu in (1500, 9000):
        heading(f"sweep: RoCE, veth, MTU {mtu}")
        veth(a, b, mtu)
        good &= Sweep(f"bandwidth, RoCE, MTU {mtu}", "GB/s", max, BANDWIDTH).add("ib_write_bw", ours_bw(a, b, "ib_write_bw", 1 << 29), ours=True) \
            .add("plain UDP, GSO and GRO", lambda size: wire.udp(a, b, "bulk", str(min(mtu, size + HEADERS))) / 8) \
            .add("iperf3, one stream", *iperf3(a, b)).add("UCX tcp tag_bw", ucx_bw(1 << 29, a, b, "tcp", wire.NAME)).run()
        unplug(a)
    return good


def over_iwarp(a, b):
    heading("sweep: iWARP, veth, MTU 1500")
    veth(a, b, 1500)
    good = Sweep("latency, iWARP, MTU 1500", "µs", min, LATENCY) \
        .add("ib_send_lat -R", ours_lat(a, b, "ib_send_lat", iwarp.start_iwarp), ours=True) \
        .add("TCP ping-pong, spinning", tcp_lat(a, b)).add("UCX tcp tag_lat", ucx_lat(a, b, "tcp", wire.NAME)).run()
    unplug(a)
    for mtu in (1500, 9000):
        heading(f"sweep: iWARP, veth, MTU {mtu}")
        veth(a, b, mtu)
        good &= Sweep(f"bandwidth, iWARP, MTU {mtu}", "GB/s", max, BANDWIDTH) \
            .add("ib_write_bw -R", ours_bw(a, b, "ib_write_bw", 1 << 29, iwarp.start_iwarp), ours=True) \
            .add("iperf3, one stream", *iperf3(a, b)).add("UCX tcp tag_bw", ucx_bw(1 << 29, a, b, "tcp", wire.NAME)).run()
        unplug(a)
    return good


def rstream(a, b, column, tcp, *args):
    return lambda size: rsocket.rstream(a, b, column, "-S", str(size), *[x(size) if callable(x) else x for x in args], tcp=tcp)


def rsockets(a, b):
    good = True
    veth(a, b, 1500)
    here = Loopback(a)
    for name, ends in (("one host", (here, here)), ("veth, MTU 1500", (a, b))):
        heading(f"sweep: rsockets, {name}")
        lat, bw = ("-C", "1", "-I", to_and_fro), ("-C", lambda size: many(size, 1 << 28), "-I", "1")
        good &= Sweep(f"latency, rsockets, {name}", "µs", min, LATENCY).add("rstream", rstream(*ends, rsocket.USEC, False, *lat), ours=True) \
            .add("rstream -T s (TCP)", rstream(*ends, rsocket.USEC, True, *lat)).run()
        good &= Sweep(f"bandwidth, rsockets, {name}", "Gb/s", max, BANDWIDTH).add("rstream", rstream(*ends, rsocket.GB_SEC, False, *bw), ours=True) \
            .add("rstream -T s (TCP)", rstream(*ends, rsocket.GB_SEC, True, *bw)).run()
    unplug(a)
    return good


# --- storage ---

READS = (4096, 16384, 65536, 262144, 1 << 20)


def disk_lat(served):
    return lambda size: served.ask("--depth=1", f"--size={size}")["latency_us"]["p50"]


def disk_bw(served):
    return lambda size: served.ask("--depth=8", f"--size={size}")["mb_s"] / 1000


def nbd_read(nbd, size, depth):
    return nbd.fio("--rw=randread", f"--bs={size}", f"--iodepth={depth}", "--time_based", "--runtime=1", "--norandommap",
                   "--randrepeat=0", "--lat_percentiles=1")["read"]


def nbd_lat(nbd):
    return lambda size: nbd_read(nbd, size, 1)["lat_ns"]["percentile"]["50.000000"] / 1000


def nbd_bw(nbd):
    return lambda size: nbd_read(nbd, size, 8)["bw_bytes"] / 1e9


def disk_sweeps(where, ours, peers):
    """ours, peers: (name, latency, bandwidth)."""
    good = True
    for figure, unit, better, at in (("latency, random reads, depth 1", "µs", min, 1), ("bandwidth, random reads, depth 8", "GB/s", max, 2)):
        s = Sweep(f"{figure}, {where}", unit, better, READS)
        for kind in (*ours, *peers):
            s.add(kind[0], kind[at], ours=kind in ours)
        good &= s.run()
    return good


def disks(a, b):
    heading("sweep: storage, one host")
    here, export = Loopback(a), ("--export", f"memory:{storage.SIZE}")
    with storage.Served(here, here, "rdma", *export).fill() as ours, storage.Nbd() as nbd:
        good = disk_sweeps("one host", [("RDMA", disk_lat(ours), disk_bw(ours))], [("nbdkit, fio's nbd engine", nbd_lat(nbd), nbd_bw(nbd))])
    heading("sweep: storage, veth, MTU 1500")
    veth(a, b, 1500)
    targets = {name: t.fill() for name, t in storage.kinds(a, b, *export)}
    kinds = [(name if name != "tcp" else "our own NVMe/TCP", disk_lat(t), disk_bw(t)) for name, t in targets.items()]
    good &= disk_sweeps("veth", [k for k in kinds if "TCP" not in k[0]], [k for k in kinds if "TCP" in k[0]])
    for t in targets.values():
        stop(t.server)
    unplug(a)
    return good


def whole(path):
    def measured(a, b):
        if not path(a, b):
            wire.unmeasured.append(path.__name__)
    return measured


if __name__ == "__main__":
    run_figures("sweep.sh", {name: whole(f) for name, f in
                             {"host": host, "roce": roce, "iwarp": over_iwarp, "rsockets": rsockets, "storage": disks}.items()})

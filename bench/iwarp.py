#!/usr/bin/env -S python3 -B
# iwarp.py - run by iwarp.sh: stock programs on iWARP across a veth pair, in turns with plain TCP and programs over TCP
# see: bench/README.md, wire.py; IPv4, connections by rdma_cm
# SPDX-License-Identifier: MIT
from wire import *
import wire

CRC = {"VERBENA_MPA": "crc"}


def start_iwarp(a, b, program, *args, env=None, seconds=20):
    own = [program, *PERFTEST, "-R", *args]
    env = {"VERBENA_DEVICES": f"iwarp:{wire.NAME}", **(env or {})}
    return Pair(a, b, lambda port: verbena(*own, "-p", str(port)),
                lambda port, host: verbena(*own, "-p", str(port), host), env, seconds)


def iw_lat(a, b, program):
    return last_row(program, start_iwarp(a, b, program, "-s", "8", "-n", LAT_N).result())[T_TYPICAL]


def iw_bw(a, b, program, seconds=2, env=None):
    """Gb/s of payload with messages of 1 MiB."""
    p = start_iwarp(a, b, program, "--report_gbits", "-s", MIB, "-D", str(seconds), env=env, seconds=seconds + 15)
    value = last_row(program, p.result())[BW_AVERAGE]
    if not value > 0:
        raise Failed(f"{program} moved nothing")
    return value


def tcp_lat(a, b):
    return float(Pair(a, b, lambda port: [tool("tcp_pingpong"), "serve", a.address, str(port)],
                      lambda port, host: [tool("tcp_pingpong"), "ask", host, str(port)]).result())


def ucx(a, b, test, size, n):
    """ucx_perftest: (µs one way, MB/s)."""
    out = Pair(a, b, lambda port: ["ucx_perftest", "-p", str(port)],
               lambda port, host: ["ucx_perftest", "-p", str(port), host, "-t", test, "-s", str(size), "-n", str(n), "-f"],
               {"UCX_TLS": "tcp", "UCX_NET_DEVICES": wire.NAME, "UCX_WARN_UNUSED_ENV_VARS": "n"}).result()
    try:
        v = out.strip().splitlines()[-1].split()
        return float(v[1]), float(v[5])
    except (IndexError, ValueError):
        raise Failed("ucx_perftest printed no figures") from None


def bulk(a, b, must, aim, env=None):
    for mtu in (1500, 9000):
        heading(f"veth, MTU {mtu}: bandwidth, messages of 1 MiB" + (", with CRC" if env else ""))
        veth(a, b, mtu)
        peers = {} if env else {"fabric": lambda: fabric(a, b, MIB, 500)[0] * 8e-3, "ucx": placed(lambda: ucx(a, b, "tag_bw", MIB, 3000)[1] * 8 * 1.048576e-3)}
        got = turns(max, write=placed(lambda: iw_bw(a, b, "ib_write_bw", env=env)),
                    iperf3=placed(*[lambda c=c: iperf3(a, b, 1, c) for c in CONGESTION]), **peers)
        compare("ib_write_bw / iperf3, one stream", got, "write", "iperf3", must, aim, gb)
        for name, said in (("ucx", "UCX tcp tag_bw"), ("fabric", "libfabric tcp, fi_pingpong")):
            if name in peers:
                compare(f"ib_write_bw / {said}", got, "write", name, 1, 1.3, gb)
        unplug(a)


def bw(a, b):
    bulk(a, b, 0.85, 1.1)


def crc(a, b):
    bulk(a, b, 0.6, 0.9, CRC)


def lat(a, b):
    heading("veth, MTU 1500: latency of 8 bytes, one way, median")
    veth(a, b, 1500)
    got = turns(min, tcp=placed(lambda: tcp_lat(a, b)),
                send=placed(lambda: iw_lat(a, b, "ib_send_lat")),
                write=placed(lambda: iw_lat(a, b, "ib_write_lat")),
                ucx=placed(lambda: ucx(a, b, "tag_lat", 8, LAT_N)[0]),
                fabric=placed(lambda: fabric(a, b, 8, int(LAT_N))[1]))
    compare("ib_send_lat / TCP ping-pong, spinning", got, "send", "tcp", 1.6, 1.15, usec, at_most=True)
    compare("ib_write_lat / TCP ping-pong, spinning", got, "write", "tcp", 2.5, 1.3, usec, at_most=True)
    compare("UCX tcp tag_lat / ib_send_lat", got, "ucx", "send", 1, 1.3, usec)
    compare("libfabric tcp, fi_pingpong / ib_send_lat", got, "fabric", "send", 1, 1.3, usec)
    unplug(a)


if __name__ == "__main__":
    run_figures("iwarp.sh", {f.__name__: f for f in (bw, crc, lat)})

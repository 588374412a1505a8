# fixture.py - a result of bench/run with all kinds of entries, and with strings that would break a page
# see: bench/record.py
# SPDX-License-Identifier: MIT
HOSTILE = ('<script>alert("1")</script>', "\"'><img src=x onerror=alert(1)>", "</style></title></svg>&amp;]]>", "http://evil.example/x", "\x1b[31mred\x00\x07\ufffe",
           "<!-- -->", "javascript:alert(1)", "|`*_[x](y)\n| new | row |")
MACHINE = {"line_ns": 123.0}


def row(script, figure, ratio, must, aim, at_most, spread=None, part="", ours="1.25 µs", peer="2.5 µs", **more):
    return {"script": script, "part": part, "figure": figure, "ours": ours, "peer": peer, "ratio": ratio, "must": must, "aim": aim,
            "at_most": at_most, "spread": spread, "machine": MACHINE, **more}


def sweep(figure, unit, at_most, **series):
    return {"script": "sweep.py", "part": "sweep", "figure": figure, "unit": unit, "at_most": at_most, "machine": MACHINE,
            "series": [{"name": name, "ours": name.startswith("ib_"), "points": [{"size": n, "values": v} for n, v in points]} for name, points in series.items()]}


def result():
    """Numbers are unlike each other, so that each can be looked for."""
    return {
        "format": 1, "date": "2026-01-02T03:04:05Z", "ended": "2026-01-02T04:05:06Z", "version": "9.8.7", "revision": "abcdef012345", "note": HOSTILE[0],
        "figures": ["send_lat", "wire.sh", "sweep.sh", "gave_nothing"],
        "machine": {"processor": HOSTILE[2], "cores": 2, "kernel": "6.1.0-test", "memory_gib": 31.4, "virtual": True},
        "versions": {"perftest": "4.5-1", "iperf3": HOSTILE[1]}, "options": {"buildtype": "debugoptimized"},
        "scripts": [{"script": "send_lat", "status": 0, "seconds": 12}, {"script": "wire.sh", "status": 2, "seconds": 61}],
        "rows": [row("send_lat", "ib_send_lat -s 8 / UCX tag_lat", 0.913, 1.43, 0.97, True, [0.871, 0.958]),
                 row("wire.py", "ib_write_bw / iperf3", 0.374, 1.21, "some word", False, [0.361, 0.389], "veth, MTU 1500", "37.4 Gb/s", "99.9 Gb/s"),
                 row("wire.py", HOSTILE[0], 2.567, 0, "none", False, None, HOSTILE[1], HOSTILE[2], HOSTILE[4]),
                 row("wire.py", HOSTILE[7], 1.777, 1, 1, False, None, "veth", HOSTILE[7], HOSTILE[5]),
                 row("idle", "processor time of an idle pair", 0.456, 10, 0, True, None, "", "0.456 ms", "", value_unit="ms"),
                 row("odd", "a ratio of nothing", float("nan"), 1, 1, False), row("odd", "an endless ratio", float("inf"), 1, 1, True),
                 row("odd", "no ratio", None, None, "none", True, [6.12, 8.34])],
        "informs": [{"script": "wire.py", "part": "veth, MTU 1500", "figure": HOSTILE[6], "peer": "18.31 Gb/s", "spread": [17.22, 19.43]}],
        "sweeps": [sweep("latency, one host", "µs", True, ib_send_lat=[(8, [0.291, 0.283, 0.305]), (4096, [1.114, 1.127, 1.109]), (1 << 20, [41.7, 40.8, 42.9])],
                         UCX=[(8, [0.312, 0.318, 0.327]), (4096, [1.337, 1.343, 1.352])]),
                   sweep(HOSTILE[0], HOSTILE[1], False, **{HOSTILE[2]: [(64, [5.43]), (512, [0, -1, float("nan")])], "ib_nothing": []}),
                   sweep("nothing at all", "GB/s", False, ib_write_bw=[])],
        "failures": [{"script": "wire.py", "part": "veth, MTU 9000", "figure": "ib_read_bw", "reason": HOSTILE[0]}, {"script": "users", "reason": "two users are needed"}],
    }

#!/usr/bin/env -S python3 -B
# wire.py - run by wire.sh: two network namespaces and the link between them, our figures and the peers' in turns, the
# table
# see: bench/README.md; IPv4, perftest with its default depth
# SPDX-License-Identifier: MIT
import json
import measure as method, record
from measure import *

NAME = "vbw0"  # the interface on both sides
MIB = "1048576"
LAT_N = "20000"
T_TYPICAL, BW_AVERAGE = 4, 3
LINK_MBIT, LINK_DELAY_MS, LINK_LOSS, LINK_QUEUE_MS = 1000, 10, 0.1, 20
CONGESTION = open("/proc/sys/net/ipv4/tcp_available_congestion_control").read().split()
unmeasured, explained = [], []


# --- the two hosts ---

class Side:
    """A network namespace, held by a sleeping process, with its own runtime directory."""

    def __init__(self, n):
        self.holder = start(["unshare", "-n", "-m", "sh", "-c", "mount -t sysfs sysfs /sys && echo here && exec sleep infinity"])
        if ask_line(self.holder, 5) != "here":  # /sys shows the interfaces of the namespace that it was mounted in
            raise Failed("no network namespace could be made")
        self.pid, self.address, self.interface = self.holder.pid, f"10.77.0.{n}", NAME
        self.env = {"VERBENA_RUNTIME": os.path.join(os.environ["WIRE_WORK"], f"run{n}")}
        os.makedirs(self.env["VERBENA_RUNTIME"], mode=0o700, exist_ok=True)
        self("ip", "link", "set", "lo", "up")

    def within(self, argv):
        return ["nsenter", "-t", str(self.pid), "-n", "-m", *argv]

    def __call__(self, *argv):
        return run(*self.within(argv), seconds=10, env=self.env)

    def listens(self, port):
        return re.search(r":%04X [0-9A-F]+:0000 0A " % port, "".join(
            open(f"/proc/{self.pid}/net/{t}").read() for t in ("tcp", "tcp6")))

    def up(self, other):
        """Addresses and neighbours are fixed, so that loss does not affect address resolution."""
        mac = "02:00:0a:4d:00:0%s"
        self("ip", "link", "set", NAME, "address", mac % self.address[-1], "txqueuelen", "10000", "up")
        self("ip", "addr", "add", self.address + "/24", "dev", NAME)
        self("ip", "neigh", "add", other.address, "lladdr", mac % other.address[-1], "nud", "permanent", "dev", NAME)

    def device(self):
        """The options -d and -x for this side's adapter, from verbena devices."""
        name = None
        for words in map(str.split, self(os.path.join(BUILD, "verbena"), "devices").splitlines()):
            if len(words) > 2 and words[1] == self.interface:
                name = words[0]
            elif words and not words[0].isdigit():
                name = None
            if name and words[-1] == "::ffff:" + self.address:
                return ["-d", name, "-x", words[-2]]
        raise Failed(f"verbena devices shows no adapter of {self.interface} with {self.address}")


class Loopback:
    """A second program on a side, which meets the first at 127.0.0.1."""

    def __init__(self, side):
        self.__dict__.update(side.__dict__)
        self.within, self.listens = side.within, side.listens
        self.address, self.interface = HOST, "lo"
        self.device = lambda: Side.device(self)

    def __call__(self, *argv):
        return run(*self.within(argv), seconds=10, env=self.env)


def veth(a, b, mtu):
    run("ip", "link", "add", NAME, "mtu", str(mtu), "netns", str(a.pid), "type", "veth",
        "peer", "name", NAME, "mtu", str(mtu), "netns", str(b.pid))
    a.up(b)
    b.up(a)


def unplug(a):
    a("ip", "link", "del", NAME)


def helper(*argv, says):
    """One of our programs that runs while something else is measured."""
    p = start(list(argv))
    if ask_line(p, 5) != says:
        raise Failed(f"`{' '.join(argv)}` did not start")
    return p


class Losing:
    """Drops each packet, in both directions, independently with this probability. With 0 everything else is the
    same."""

    def __init__(self, a, b, percent):
        self.sides, self.percent = (a, b), percent

    def __enter__(self):
        self.helpers = [helper(*s.within([tool("wire_drop"), NAME, str(self.percent)]), says="losing") for s in self.sides]

    def __exit__(self, *_):
        for p in self.helpers:
            stop(p)


def long_link(a, b, loss):
    p = helper(tool("wire_link"), str(a.pid), str(b.pid), NAME, str(LINK_MBIT), str(LINK_DELAY_MS), str(loss), str(LINK_QUEUE_MS),
               says="up")
    a.up(b)
    b.up(a)
    return p


# --- programs: a server on one side, a client on the other ---

class Pair:
    """Returns the client's output. The client starts when the server listens."""

    def __init__(self, a, b, serve, ask, env=None, seconds=20):
        port = free_port()
        self.end = time.monotonic() + seconds
        self.serve, self.ask = a.within(serve(port)), b.within(ask(port, a.address))
        self.server = start(self.serve, 0, env={**a.env, **(env or {})})
        while not a.listens(port):
            if self.server.poll() is not None or time.monotonic() > self.end:
                finish(self.server, 0.1, self.serve)
                raise Failed(f"`{' '.join(serve(port))}` ended before anyone came")
            time.sleep(0.005)
        self.client = start(self.ask, 1, env={**b.env, **(env or {})})

    def result(self):
        try:
            return finish(self.client, self.end - time.monotonic(), self.ask[self.ask.index("-m") + 1:])
        except Failed as e:
            raise Failed(f"{e}{self.server_said()}") from None
        finally:
            self.stop()

    def server_said(self):
        stop_soon = time.monotonic() + 1
        while self.server.poll() is None and time.monotonic() < stop_soon:
            time.sleep(0.02)
        if self.server.poll() is None:
            return ""
        said = [x.strip() for x in self.server.stdout.read().splitlines() if re.search(r"fail|error|unable|could|cannot", x, re.I)]
        return " | server: " + " | ".join(said[:2]) if said else ""

    def stop(self):
        stop(self.client)
        if self.server.poll() is None:
            try:
                self.server.communicate(timeout=2)
            except subprocess.TimeoutExpired:
                pass
        stop(self.server)


def start_perftest(a, b, program, *args, env=None, seconds=20):
    own = [program, *PERFTEST, *args]
    return Pair(a, b, lambda port: verbena(*own, *a.device(), "-p", str(port)),
                lambda port, host: verbena(*own, *b.device(), "-p", str(port), host), env, seconds)


def perf_lat(a, b, program, env=None):
    return last_row(program, start_perftest(a, b, program, "-s", "8", "-n", LAT_N, env=env).result())[T_TYPICAL]


def perf_bw(a, b, program, seconds=3, env=None):
    """Gb/s of payload with messages of 1 MiB."""
    p = start_perftest(a, b, program, "--report_gbits", "-s", MIB, "-D", str(seconds), env=env, seconds=seconds + 15)
    value = last_row(program, p.result())[BW_AVERAGE]
    if not value > 0:
        raise Failed(f"{program} moved nothing")
    return value


def udp(a, b, *what):
    out = Pair(a, b, lambda port: [tool("wire_udp"), "serve", a.address, str(port)],
               lambda port, host: [tool("wire_udp"), what[0], host, str(port), *what[1:]]).result()
    return float(out.split()[0])


def ucx_lat(a, b, test):
    out = Pair(a, b, lambda port: ["ucx_perftest", "-p", str(port)],
               lambda port, host: ["ucx_perftest", "-p", str(port), host, "-t", test, "-s", "8", "-n", LAT_N, "-f"],
               {"UCX_TLS": "tcp", "UCX_NET_DEVICES": NAME, "UCX_WARN_UNUSED_ENV_VARS": "n"}).result()
    try:
        return float(out.strip().splitlines()[-1].split()[1])
    except (IndexError, ValueError):
        raise Failed("ucx_perftest printed no figures") from None


def fabric(a, b, size, n):
    """fi_pingpong: (MB/s, µs one way). The port is for its control connection."""
    opts = ["-p", "tcp", "-e", "msg", "-S", str(size), "-I", str(n)]
    out = Pair(a, b, lambda port: ["fi_pingpong", *opts, "-B", str(port)],
               lambda port, host: ["fi_pingpong", *opts, "-P", str(port), host]).result()
    try:
        v = out.strip().splitlines()[-1].split()
        return float(v[5]), float(v[6])
    except (IndexError, ValueError):
        raise Failed("fi_pingpong printed no figures") from None


def start_iperf3(a, b, seconds, congestion):
    return Pair(a, b, lambda port: ["iperf3", "-s", "-1", "-p", str(port)],
                lambda port, host: ["iperf3", "-c", host, "-p", str(port), "-t", str(seconds), "-i", "1", "-J", "-C", congestion],
                seconds=seconds + 15)


def iperf3(a, b, seconds, congestion):
    return iperf3_rate(start_iperf3(a, b, seconds, congestion).result()) / 1e9


# --- turns and rows ---

def turns(better, n=PAIRS, **what):
    """Measures everything n times, one after the other. what: a measurement, or several of one figure with different
    settings, of which the one with the best median counts. Returns values by name, or the reason for a missing one. A
    failed measurement is not repeated."""
    settings = {name: m if isinstance(m, list) else [m] for name, m in what.items()}
    got = {name: [[] for _ in m] for name, m in settings.items()}
    for _ in range(n):
        for name, several in settings.items():
            for i, once in enumerate(several):
                if isinstance(got[name][i], Failed):
                    continue
                try:
                    got[name][i].append(once())
                except Failed as e:
                    got[name][i] = e
    return {name: better([v for v in m if isinstance(v, list)], key=statistics.median, default=m[0]) for name, m in got.items()}


def placed(*several):
    """Measures with each end on its own core, and with free scheduling: programs differ in which is faster."""
    def free(measure):
        method.CORES = None
        try:
            return measure()
        finally:
            method.CORES = CORES
    return [m for m in several] + ([lambda m=m: free(m) for m in several] if CORES else [])


def gb(x):
    return f"{x:.2f} Gb/s"


def usec(x):
    return f"{x:.2f} µs"


def share(x):
    return f"{x:.3f}"


def not_measured(title, *values):
    unmeasured.append(title)
    why = " | ".join(dict.fromkeys(str(x) for x in values if isinstance(x, Failed)))
    record.add("failed", part=method.part, figure=title, reason=why)
    explain(*values)


def explain(*values):
    """Returns each reason once."""
    for x in values:
        if isinstance(x, Failed) and x not in explained:
            explained.append(x)
            print(f"    n/a: {x}", flush=True)


def compare(title, got, ours, peer, must, aim, text, at_most=False):
    mine, theirs = got[ours], got[peer]
    if isinstance(mine, list) and isinstance(theirs, list):
        ratios = sorted(m / t for m, t in zip(mine, theirs))
        row(title, text(statistics.median(mine)), text(statistics.median(theirs)), statistics.median(ratios), must, aim,
            (ratios[0], ratios[-1]), at_most)
        return
    cell = ["n/a" if isinstance(x, Failed) else text(statistics.median(x)) for x in (mine, theirs)]
    line(title, *cell, "n/a", f"{'≤' if at_most else '≥'} {must:g}", f"{aim:g}")
    not_measured(title, mine, theirs)


def inform(title, got, name, text):
    x = got[name]
    if isinstance(x, Failed):
        line(title, "", "n/a")
        record.add("failed", part=method.part, figure=title, reason=str(x))
        explain(x)
    else:
        line(title, "", text(statistics.median(x)), "", "", "", f"{min(x):.2f}..{max(x):.2f}")
        record.add("inform", part=method.part, figure=title, peer=text(statistics.median(x)), spread=[min(x), max(x)])


def heading(text):
    method.part = text
    print(f"\n{text}", flush=True)
    load = busy()
    if load > 0.05:
        print(f"    other programs use {load:.0%} of this machine's cores now", flush=True)


# --- the figures ---

def lat(a, b):
    heading("veth, MTU 1500: latency of 8 bytes, one way, median")
    veth(a, b, 1500)
    got = turns(min, udp=placed(lambda: udp(a, b, "lat")),
                send=placed(lambda: perf_lat(a, b, "ib_send_lat")),
                tag=placed(lambda: ucx_lat(a, b, "tag_lat")),
                write=placed(lambda: perf_lat(a, b, "ib_write_lat")),
                steps=placed(lambda: udp(a, b, "steps")),
                fabric=placed(lambda: fabric(a, b, 8, int(LAT_N))[1]))
    compare("ib_send_lat / UDP ping-pong, spinning", got, "send", "udp", 1.5, 1.2, usec, at_most=True)
    compare("ib_write_lat / UCX tcp tag_lat", got, "write", "tag", 1.5, 0.6, usec, at_most=True)
    inform("UDP ping-pong with the steps of RoCE, spinning", got, "steps", usec)
    inform("libfabric tcp, fi_pingpong", got, "fabric", usec)
    unplug(a)


def bw(a, b):
    for mtu in (1500, 9000):
        heading(f"veth, MTU {mtu}: bandwidth, messages of 1 MiB")
        packet = 4096 if mtu > 4200 else 1024  # the path MTU
        veth(a, b, mtu)
        got = turns(max, udp=placed(lambda: udp(a, b, "bulk", str(mtu))),
                    write=placed(lambda: perf_bw(a, b, "ib_write_bw", 2)),
                    iperf3=placed(*[lambda c=c: iperf3(a, b, 1, c) for c in CONGESTION]),
                    read=placed(lambda: perf_bw(a, b, "ib_read_bw", 2)),
                    copied=placed(lambda: stream_floor(a, b, "src", 1 << 20, 20000, packet)),
                    pages=placed(lambda: stream_floor(a, b, "srcp", 1 << 20, 20000, packet)),
                    together=placed(lambda: stream_floor(a, b, "srcpfd", 1 << 20, 20000, packet)),
                    fabric=lambda: fabric(a, b, MIB, 500)[0] * 8e-3)
        for name in ("write", "read"):
            compare(f"ib_{name}_bw / plain UDP, GSO and GRO", got, name, "udp", 0.5, 0.8, gb)
            compare(f"ib_{name}_bw / iperf3, one stream", got, name, "iperf3", 1.4 if mtu == 9000 else 1.25, 1.8, gb)
        inform("bare loop over UDP: copies, CRC", got, "copied", gb)
        inform("bare loop over UDP: copies, CRC, from pages", got, "pages", gb)
        inform("bare loop over UDP: CRC, put together in pages", got, "together", gb)
        inform("libfabric tcp, fi_pingpong 1 MiB", got, "fabric", gb)
        unplug(a)


def loss(a, b):
    def at(percent, measure):
        with Losing(a, b, percent):
            return measure()

    for mtu in (1500, 9000):
        heading(f"veth, MTU {mtu}: 1 % of all packets lost, in both directions, beside none")
        veth(a, b, mtu)
        got = turns(max, min(3, PAIRS), none=lambda: at(0, lambda: perf_bw(a, b, "ib_write_bw")),
                    lossy=lambda: at(1, lambda: perf_bw(a, b, "ib_write_bw")),
                    tcp_none=[lambda c=c: at(0, lambda: iperf3(a, b, 2, c)) for c in CONGESTION],
                    tcp=[lambda c=c: at(1, lambda: iperf3(a, b, 2, c)) for c in CONGESTION])
        compare("ib_write_bw, 1 % lost / none lost", got, "lossy", "none", 0.1, 0.5, gb)
        inform("iperf3, 1 % lost", got, "tcp", gb)
        inform("iperf3, none lost", got, "tcp_none", gb)
        unplug(a)


def shares(a, b, congestion, seconds=8):
    """ib_write_bw beside a TCP flow that starts some seconds before and ends after it: the shares of the link."""
    tcp = start_iperf3(a, b, seconds + 6, congestion)
    try:
        time.sleep(2)
        began = time.monotonic()
        ours = perf_bw(a, b, "ib_write_bw", seconds) * 1000 / LINK_MBIT
        lasted = time.monotonic() - began
        intervals = [x["sum"] for x in json.loads(tcp.result())["intervals"]]
    finally:
        tcp.stop()
    during = [x["bits_per_second"] for x in intervals if x["start"] >= 3 and x["end"] <= 1 + lasted]
    if not during:
        raise Failed("ib_write_bw ended before its time")
    return ours, statistics.mean(during) / (LINK_MBIT * 1e6)


def both_shares(title, a, b, congestion):
    try:
        ours, tcp = shares(a, b, congestion)
    except Failed as e:
        line(title, "n/a", "n/a", "n/a", "≥ 0.2", "0.5")
        not_measured(title, e)
        return
    row(title, share(ours), share(tcp), min(ours, tcp), 0.2, 0.5, at_most=False)


def long(a, b):
    """No cubic or reno here: random loss keeps them below a twentieth of this link even when they are alone."""
    for lost, neighbours in ((LINK_LOSS, ["bbr"]), (0, ["cubic", "bbr"])):
        neighbours = [c for c in neighbours if c in CONGESTION]
        heading(f"{LINK_MBIT} Mbit/s, {LINK_DELAY_MS} ms each way, {lost} % lost, MTU 1500, queue of {LINK_QUEUE_MS} ms: shares of the link")
        link = long_link(a, b, lost)
        got = turns(max, 1, ours=lambda: perf_bw(a, b, "ib_write_bw", 8) * 1000 / LINK_MBIT, link=lambda: 1,
                    **{c: lambda c=c: iperf3(a, b, 8, c) * 1000 / LINK_MBIT for c in CONGESTION})
        compare("ib_write_bw alone / the link", got, "ours", "link", 0.3, 0.8, share)
        for c in CONGESTION:
            inform(f"iperf3 alone, {c}", got, c, share)
        for c in neighbours:
            both_shares(f"ib_write_bw beside iperf3 {c}, the smaller", a, b, c)
        stop(link)
        time.sleep(0.2)


def datagrams(side):
    """The number of UDP datagrams that programs of this namespace have received."""
    names, values = [x.split() for x in open(f"/proc/{side.pid}/net/snmp") if x.startswith("Udp:")]
    return int(values[names.index("InDatagrams")])


def by_udp(side, measure):
    before = datagrams(side)
    value = measure()
    if datagrams(side) - before < 1000:
        raise Failed("VERBENA_WIRE=always: the data did not go by UDP")
    return value


def lo(a, _):
    heading("loopback with VERBENA_WIRE=always, two programs of one host")
    here, always = Loopback(a), {"VERBENA_WIRE": "always"}
    got = turns(min, udp=placed(lambda: udp(here, here, "lat")),
                send=placed(lambda: by_udp(a, lambda: perf_lat(here, here, "ib_send_lat", always))))
    compare("ib_send_lat / UDP ping-pong, spinning", got, "send", "udp", 2, 1.2, usec, at_most=True)
    got = turns(max, udp=placed(lambda: udp(here, here, "bulk", "9000"), lambda: udp(here, here, "bulk", "65535")),
                write=placed(lambda: by_udp(a, lambda: perf_bw(here, here, "ib_write_bw", 2, always))))
    compare("ib_write_bw / plain UDP", got, "write", "udp", 0.5, 0.8, gb)


FIGURES = {f.__name__: f for f in (lat, bw, loss, long, lo)}


def run_figures(script, figures):
    wanted = sys.argv[1:] or list(figures)
    if "WIRE_WORK" not in os.environ or set(wanted) - set(figures):
        sys.exit(f"usage: bench/{script} [{'|'.join(figures)}]...")
    if os.environ.get("BENCH_HEADER") != "no":
        header()
    try:
        hosts = Side(1), Side(2)
        for name in wanted:
            figures[name](*hosts)
    except Failed as e:
        print(f"{script}: {e}", file=sys.stderr)
        record.add("failed", part=method.part, reason=str(e))
        sys.exit(2)
    sys.exit(2 if unmeasured else 1 if missed else 0)


if __name__ == "__main__":
    run_figures("wire.sh", FIGURES)

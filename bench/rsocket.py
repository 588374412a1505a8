#!/usr/bin/env -S python3 -B
# rsocket.py - run by rsocket.sh: rstream over rsockets and over TCP ("-T s"), and iperf3, in turns; on a veth pair also the
# same steps as a bare loop over UDP (stream_floor.c)
# see: bench/README.md, rstream(1)
# SPDX-License-Identifier: MIT
import measure as method
from measure import *

GB_SEC, USEC = -2, -1  # columns of rstream's row
NAME = "vbr0"


class End:
    """The place of a program: here, or a network namespace that a sleeping process holds."""

    def __init__(self, address, runtime=None):
        self.address, self.holder = address, None
        self.env = {"VERBENA_RUNTIME": runtime} if runtime else {}

    def hold(self):
        self.holder = start(["unshare", "-n", "-m", "sh", "-c", "mount -t sysfs sysfs /sys && echo here && exec sleep infinity"])
        if ask_line(self.holder, 5) != "here":
            raise Failed("no network namespace could be made")
        return self

    def within(self, argv):
        return ["nsenter", "-t", str(self.holder.pid), "-n", "-m", *argv] if self.holder else list(argv)

    def __call__(self, *argv):
        return run(*self.within(argv), seconds=10)


def ask(a, b, serve, client, seconds=40):
    """Runs both programs on a free port and returns the client's output. No table shows a listening rsocket, so a
    refused client is started again."""
    port = str(free_port())
    argv = b.within([*client, "-p", port])
    end = time.monotonic() + seconds
    server = start(a.within([*serve, "-p", port]), 0, env=a.env)
    try:
        while True:
            p = start(argv, 1, env=b.env)
            try:
                out, _ = p.communicate(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failed(f"`{' '.join(argv)}` did not end") from None
            finally:
                stop(p)
            if not p.returncode and "refused" not in out: # iperf3 -J reports errors in JSON and exits with 0
                return out
            if not re.search("refused|in progress", out) or time.monotonic() > end or server.poll() is not None:
                raise Failed(f"`{' '.join(argv)}` failed: {out[-200:].strip()}")
            time.sleep(0.05)
    finally:
        stop(server)


def rstream(a, b, column, *args, tcp=False):
    command = ["rstream", *args, "-T", "s"] if tcp else verbena("rstream", *args)
    rows = [x.split() for x in ask(a, b, command, [*command, "-s", a.address]).splitlines() if x.startswith("custom")]
    if not rows or float(rows[-1][column]) <= 0:
        raise Failed("rstream printed no figures")
    return float(rows[-1][column])


def iperf3(a, b):
    out = ask(a, b, ["iperf3", "-s", "-1"], ["iperf3", "-c", a.address, "-t", "1", "-J"])
    try:
        return iperf3_rate(out) / 1e9
    except (KeyError, ValueError):
        raise Failed(f"iperf3 printed no figures: {out[-200:].strip()}") from None


def turns(ours, peers, better):
    """Like pairs(), but without the check for moved cores, because each round takes seconds."""
    rounds = [(ours(), [peer() for peer in peers]) for _ in range(PAIRS)]
    best = better(range(len(peers)), key=lambda i: statistics.median(t[i] for _, t in rounds))
    ratios = sorted(m / t[best] for m, t in rounds)
    return (statistics.median(m for m, _ in rounds), statistics.median(t[best] for _, t in rounds),
            statistics.median(ratios), (ratios[0], ratios[-1]))


def bandwidth(a, b, size, count, peers, must, aim):
    args = ("-S", str(size), "-C", str(count), "-I", "2")
    ours, peer, ratio, spread = turns(lambda: rstream(a, b, GB_SEC, *args), [lambda p=p: p(args) for p in peers], max)
    row(f"rstream, {size} bytes, {where} / TCP", f"{ours:.2f} Gb/s", f"{peer:.2f} Gb/s", ratio, must, aim, spread, at_most=False)


def latency(a, b, must, aim):
    args = ("-S", "64", "-C", "1", "-I", "20000")
    ours, peer, ratio, spread = turns(lambda: rstream(a, b, USEC, *args), [lambda: rstream(a, b, USEC, *args, tcp=True)], min)
    row(f"rstream, 64 bytes to and fro, {where} / TCP", us(ours), us(peer), ratio, must, aim, spread)


def figures(a, b, fro, musts, aim):
    """fro: must and aim of the latency. musts: of 64 bytes, 64 KiB and 1 MiB."""
    def tcp(args):
        return rstream(a, b, GB_SEC, *args, tcp=True)
    both = [tcp, lambda args: iperf3(a, b)] if shutil.which("iperf3") else [tcp]
    latency(a, b, *fro)
    bandwidth(a, b, 64, 100000, [tcp], musts[0], aim)
    bandwidth(a, b, 65536, 5000, both, musts[1], aim)
    bandwidth(a, b, 1 << 20, 400, both, musts[2], aim)


def floor(a, b):
    """An estimate of what rsockets can reach over RoCE: with all of their copies, and with none."""
    for steps, name in (("usrvw", "bare loop over UDP with the copies of rsockets"), ("usrvcpw", "bare loop over UDP with the copies and sums, from pages"), ("w", "bare loop over UDP without copies"), ("usrvcpfdw", "bare loop over UDP with the copies and sums, put together in pages")):
        ours, peer, ratio, spread = turns(lambda: stream_floor(a, b, steps, 1 << 18, 5000, 1024), [lambda: rstream(a, b, GB_SEC, "-S", "65536", "-C", "5000", "-I", "2", tcp=True)], max)
        row(f"{name}, 65536 bytes, {where} / TCP", f"{ours:.2f} Gb/s", f"{peer:.2f} Gb/s", ratio, 0, "none", spread, at_most=False)


def host():
    figures(End(HOST), End(HOST), (1, 0.5), (1, 1, 1), 2)


def veth():
    base = os.environ["VERBENA_RUNTIME"]
    a, b = (End(f"10.78.0.{n}", f"{base}/{n}").hold() for n in (1, 2))
    for e in (a, b):
        os.mkdir(e.env["VERBENA_RUNTIME"], mode=0o700)
    run("ip", "link", "add", NAME, "netns", str(a.holder.pid), "type", "veth", "peer", "name", NAME, "netns", str(b.holder.pid))
    for e in (a, b):
        e("ip", "link", "set", "lo", "up")
        e("ip", "addr", "add", e.address + "/24", "dev", NAME)
        e("ip", "link", "set", NAME, "up")
    figures(a, b, (1.6, 1), (1, 0.9, 1), 1.2)
    floor(a, b)


if __name__ == "__main__":
    if sys.argv[1:] not in (["host"], ["veth"]):
        sys.exit("usage: bench/rsocket.sh [host|veth]...")
    where = method.part = sys.argv[1]
    main(globals()[where])

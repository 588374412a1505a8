# measure.py - the method of bench/: runs our program and its peer one after the other, and prints medians and ratios in
# rows
# see: bench/README.md
# SPDX-License-Identifier: MIT
import atexit, ctypes, json, os, platform, re, select, shutil, signal, socket, statistics, subprocess, sys, tempfile, time

import record

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
HOST = "127.0.0.1"
PAIRS = int(os.environ.get("BENCH_PAIRS", "5"))
PERFTEST = ["-F"]  # suppresses the warning about the CPU governor


class Failed(Exception):
    """One line for the user."""


# --- the machine ---

def two_cores():
    """Two cores of this process; if possible, not two threads of one core."""
    cores = sorted(os.sched_getaffinity(0))

    def place(core):
        path = f"/sys/devices/system/cpu/cpu{core}/topology/"
        try:
            return tuple(open(path + f).read() for f in ("physical_package_id", "core_id"))
        except OSError:
            return core
    others = [c for c in cores[1:] if place(c) != place(cores[0])] or cores[1:] or cores
    return cores[0], others[0]


CORES = None if os.environ.get("BENCH_CORES") == "" else two_cores()
if CORES:
    os.environ["BENCH_CORES"] = "%d,%d" % CORES


def busy():
    """The share of all cores that is in use now."""
    def read():
        v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        return sum(v), v[3] + v[4]
    all1, idle1 = read()
    time.sleep(0.5)
    all2, idle2 = read()
    return 1 - (idle2 - idle1) / max(1, all2 - all1)


def warn_if_busy():
    share = busy()
    if share > 0.05:
        print(f"Other programs use {share:.0%} of this machine's cores now: figures are worse than they could be.\n")


# --- programs ---

started = set()


def die_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def start(argv, core=None, stdin=subprocess.DEVNULL, env=None):
    """Starts argv in its own process group, on one of CORES."""
    def before():
        die_with_us()
        if core is not None and CORES:
            os.sched_setaffinity(0, {CORES[core]})
    try:
        p = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             start_new_session=True, preexec_fn=before, env={**os.environ, **(env or {})})
    except FileNotFoundError:
        raise Failed(f"{argv[0]} is not there (tests/install-packages bench, make build)") from None
    started.add(p)
    return p


def stop(p):
    """Ends a process that start() started, in any state."""
    if p.poll() is None:
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    p.wait()
    p.stdout.close()
    started.discard(p)


def stop_all(*_):
    for p in list(started):
        stop(p)


atexit.register(stop_all)
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(s, lambda n, _: sys.exit(128 + n))


def finish(p, seconds, argv):
    """The output of p, if it succeeds in that time."""
    try:
        out, _ = p.communicate(timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired:
        raise Failed(f"`{' '.join(argv)}` did not end within {seconds:.0f} s") from None
    finally:
        stop(p)
    if p.returncode:
        said = [line.strip() for line in out.splitlines() if line.strip(" -")]
        why = [line for line in said if re.search(r"fail|error|unable|could|cannot|not ", line, re.I)] or said[-1:] or ["it said nothing"]
        raise Failed(f"`{' '.join(argv)}` failed ({p.returncode}): {' | '.join(why[:3])}")
    return out


def run(*argv, core=None, seconds=60, env=None):
    argv = list(argv)
    return finish(start(argv, core, env=env), seconds, argv)


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def listens(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            if re.search(r":%04X [0-9A-F]+:0000 0A " % port, open(table).read()):
                return True
        except OSError:
            pass
    return False


def pair(make, seconds=30, env=None):
    """Runs a server and a client on the two cores. make(port) gives both commands. Returns what the client printed."""
    for attempt in (1, 2):  # another program may take the port before the server does
        port = free_port()
        serve, ask = make(port)
        end = time.monotonic() + seconds
        server = start(serve, 0, env=env)
        while not listens(port) and server.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        if server.poll() is not None and attempt == 1:
            stop(server)
            continue
        if not listens(port):
            finish(server, 1, serve)
            raise Failed(f"`{' '.join(serve)}` ended before anyone came")
        client = start(ask, 1, env=env)
        try:
            return finish(client, end - time.monotonic(), ask)
        finally:
            try:
                server.communicate(timeout=3)
            except subprocess.TimeoutExpired:
                pass
            stop(server)


def tool(name):
    """One of our measuring programs."""
    path = os.path.join(BUILD, "bench", name)
    if not os.access(path, os.X_OK):
        raise Failed(f"{os.path.relpath(path)} is not built: make build")
    return path


def verbena(*argv):
    path = os.path.join(BUILD, "verbena")
    if not os.access(path, os.X_OK):
        raise Failed(f"{os.path.relpath(path)} is not built: make build")
    return [path, "run", *argv]


def last_row(name, out):
    """The last row of a table that one of perftest's programs has printed, as numbers."""
    rows = [line.split() for line in out.splitlines() if re.fullmatch(r"\s*\d+(\s+-?[\d.]+|\s+-?nan|\s+inf)+\s*", line)]
    if not rows:
        raise Failed(f"{name} printed no figures: {out.strip().splitlines()[-1] if out.strip() else 'nothing at all'}")
    return [float(x) for x in rows[-1]]


def perftest(name, *args, before=(), seconds=30, server_args=()):
    """One of Debian's perftest programs, unmodified, against itself. Returns the last row of its table, as numbers."""
    out = pair(lambda port: ([*before, *verbena(name, *PERFTEST, "-p", str(port), *args, *server_args)],
                             [*before, *verbena(name, *PERFTEST, "-p", str(port), *args, HOST)]), seconds)
    return last_row(name, out)


def ucx(test, size, n, tls, seconds=30, **more):
    """ucx_perftest: (typical latency in µs, messages per second)."""
    opts = ["-t", test, "-s", str(size), "-n", str(n), "-f"]
    out = pair(lambda port: (["ucx_perftest", "-p", str(port)], ["ucx_perftest", "-p", str(port), HOST, *opts]), seconds,
               env={"UCX_TLS": tls, "UCX_WARN_UNUSED_ENV_VARS": "n", **more})
    try:
        v = [float(x) for x in out.strip().splitlines()[-1].split()]
        return v[1], v[-1]
    except (IndexError, ValueError):
        raise Failed(f"ucx_perftest printed no figures (UCX_TLS={tls})") from None


# A peer is never handicapped: each of these settings is measured, and the best one counts.
UCX_SETTINGS = [{"tls": "posix,self"}, {"tls": "posix,cma,self"}, {"tls": "sm,self"}]


def stream_floor(a, b, steps, window, pieces, packet):
    """Gb/s of a stream of packets over UDP from b to a, as a bare loop (stream_floor.c)."""
    argv = [str(free_port()), steps, str(window), str(pieces), str(packet)]
    receiver = start(a.within([tool("stream_floor"), "receive", a.address, b.address, *argv]), 0)
    try:
        time.sleep(0.2)
        return float(finish(start(b.within([tool("stream_floor"), "send", b.address, a.address, *argv]), 1), 20, ["stream_floor"]))
    finally:
        stop(receiver)


def iperf3_rate(out):
    """Bits per second counted by the receiver of `iperf3 -J`. iperf3 reports errors in the same JSON, or omits sums."""
    try:
        report = json.loads(out)
    except ValueError:
        raise Failed("iperf3 printed no JSON") from None
    received = report.get("end", {}).get("sum_received", {}).get("bits_per_second")
    if not received:
        raise Failed(f"iperf3 measured nothing: {report.get('error', 'no sum_received in its report')}")
    return received


# --- pairs and rows ---

def placement():
    """The time that a cache line takes from one core to the other, in ns. If virtual cores have moved in between, two
    figures cannot be compared."""
    global machine_line
    machine_line = float(run(tool("line"), seconds=10)) if CORES else 0
    return machine_line


machine_line = 0  # ns, of the last placement()


def machine():
    """The class of this machine, for a row: the time that a cache line takes between the two cores, and the
    processor."""
    global machine_line
    if not machine_line and CORES:
        try:
            machine_line = placement()
        except Failed:
            pass
    try:
        model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read()).group(1)
    except (OSError, AttributeError):
        model = platform.machine()
    return {"line_ns": machine_line, "cores": len(os.sched_getaffinity(0)), "cpu": model, "kernel": platform.release()}


def same_place(a, b):
    return max(a, b) <= 1.5 * min(a, b)


def pairs(ours, peers, better, n=PAIRS, seconds=90):
    """Measures ours and then each of the peers, n times. Returns medians (ours, best peer, ratio ours/peer) and the
    spread of the ratio. A round in which the cores moved is repeated while there is time. better: min or max."""
    end = time.monotonic() + seconds
    good, moved = [], []
    before = placement()
    while len(good) < n and (time.monotonic() < end or len(good) + len(moved) < n):
        mine, theirs = ours(), [peer() for peer in peers]
        after = placement()
        (good if same_place(before, after) else moved).append((mine, theirs))
        before = after
    rounds = (good + moved)[:max(n, len(good))]
    best = better(range(len(peers)), key=lambda i: statistics.median(t[i] for _, t in rounds))
    ratios = sorted(m / t[best] for m, t in rounds)
    return (statistics.median(m for m, _ in rounds), statistics.median(t[best] for _, t in rounds),
            statistics.median(ratios), (ratios[0], ratios[-1]))


WIDTHS = (42, 14, 14, 8, 9, 8, 14, 8)


def line(*cells):
    print("  ".join(f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(cells, WIDTHS))).rstrip(), flush=True)


def header():
    line("figure", "ours", "peer", "ratio", "must", "aim", "spread", "machine")


missed = []
part = ""  # what the rows that follow have in common; a script with several parts sets it


def row(figure, ours, peer, ratio, must, aim, spread=None, at_most=True, value_unit=None):
    """ours and peer are words with a unit; ratio, must, aim numbers (aim may be a word). value_unit: there is no peer,
    and ratio, must and aim are values in this unit."""
    good = ratio <= must if at_most else ratio >= must
    sign = "≤" if at_most else "≥"
    line(figure, ours, peer, f"{ratio:.2f}", f"{sign} {must:g}", aim if isinstance(aim, str) else f"{aim:g}",
         f"{spread[0]:.2f}..{spread[1]:.2f}" if spread else "", f"{machine()['line_ns']:.0f} ns")
    record.add("row", part=part, figure=figure, ours=ours, peer=peer, ratio=ratio, must=must, aim=aim, at_most=at_most, spread=spread,
               build=os.environ.get("BUILD", "build"), machine=machine(), **({"value_unit": value_unit} if value_unit else {}))
    if not good:
        missed.append(figure)
        print(f"    MISSED: {figure}", flush=True)


def us(x):
    return f"{x:.3f} µs"


def gbs(mb):
    return f"{mb / 1000:.2f} GB/s"


def mps(x):
    return f"{x / 1e6:.2f} M/s"


def own_runtime():
    """A separate broker, so that queue pairs of other programs do not count. Removed at the end."""
    if "VERBENA_RUNTIME" in os.environ:
        return
    path = tempfile.mkdtemp(prefix="verbena-bench-")
    os.environ["VERBENA_RUNTIME"] = path

    def remove():
        stop_all()
        end = time.monotonic() + 3
        while broker_pids(path) and time.monotonic() < end:
            time.sleep(0.05)
        shutil.rmtree(path, ignore_errors=True)
    atexit.register(remove)


def broker_pids(directory=None):
    directory = directory or os.environ["VERBENA_RUNTIME"]
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", errors="replace").read().split("\0")
        except OSError:
            continue
        if "--dir" in words and "broker" in words[0] and os.path.realpath(words[words.index("--dir") + 1]) == os.path.realpath(directory):
            found.append(int(pid))
    return found


def ask_line(p, seconds):
    """The next line that p prints."""
    if not select.select([p.stdout], [], [], seconds)[0]:
        raise Failed(f"`{' '.join(p.args)}` said nothing for {seconds} s")
    text = p.stdout.readline()
    if not text:
        raise Failed(f"`{' '.join(p.args)}` ended")
    return text.strip()


def main(*figures):
    """Called by each figure's script. A script that runs alone prints the header."""
    if os.environ.get("BENCH_HEADER") != "no":
        warn_if_busy()
        header()
    own_runtime()
    failed = False
    for figure in figures:
        try:
            figure()
        except Failed as e:
            print(f"{os.path.basename(sys.argv[0])}: {e}", file=sys.stderr)
            record.add("failed", part=part, reason=str(e))
            failed = True
    sys.exit(2 if failed else 1 if missed else 0)

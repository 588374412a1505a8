# record.py - what is kept of a run of bench/: lines of JSON while it measures, one JSON object at its end
# see: bench/README.md, "What a run leaves"
# SPDX-License-Identifier: MIT
import json, math, os, platform, re, subprocess, sys, time

FORMAT = 1
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGES = ("perftest", "ibverbs-utils", "rdmacm-utils", "ucx-utils", "libfabric-bin", "iperf3", "fio", "nbdkit", "opensm", "ibsim-utils")
LIMIT = 16 << 20  # bytes of a result


class Wrong(Exception):
    """One line for the user: this is no result of bench/run."""


def add(kind, **cells):
    """Appends a line to the file that BENCH_JSON names."""
    path = os.environ.get("BENCH_JSON")
    if path:
        with open(path, "a") as f:
            f.write(json.dumps({"kind": kind, "script": os.path.basename(sys.argv[0]), **cells}) + "\n")


# --- the machine ---

def text_of(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def find(pattern, text, otherwise=""):
    found = re.search(pattern, text, re.M)
    return found.group(1).strip() if found else otherwise


def said(*argv):
    """The first line that a program prints, or nothing."""
    try:
        p = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return p.stdout.strip().splitlines()[0] if not p.returncode and p.stdout.strip() else ""


def chosen(path):
    """The word in brackets, as in "always [madvise] never"."""
    return find(r"\[([^\]]+)\]", text_of(path))


def processor():
    info = text_of("/proc/cpuinfo")
    return {"processor": find(r"^model name\s*:(.*)", info, platform.machine()), "architecture": platform.machine(),
            "virtual": "hypervisor" in find(r"^flags\s*:(.*)", info).split()}


def describe():
    """What a figure may depend on. Nothing that names the machine or its owner."""
    page = "/sys/kernel/mm/transparent_hugepage/"
    cpu = "/sys/devices/system/cpu/"
    return {**processor(), "cores": len(os.sched_getaffinity(0)), "cores_of_the_machine": os.cpu_count(),
            "memory_gib": round(int(find(r"^MemTotal:\s*(\d+)", text_of("/proc/meminfo"), "0")) / (1 << 20), 1),
            "kernel": platform.release(), "system": find(r'^PRETTY_NAME="?([^"\n]*)', text_of("/etc/os-release")),
            "governor": text_of(cpu + "cpu0/cpufreq/scaling_governor").strip() or "none shown",
            "threads_per_core": text_of(cpu + "smt/active").strip() == "1" and "several" or "one",
            "huge_pages": chosen(page + "enabled"),
            "congestion_control": text_of("/proc/sys/net/ipv4/tcp_available_congestion_control").strip(),
            "load_average": text_of("/proc/loadavg").split()[:1] and float(text_of("/proc/loadavg").split()[0])}


def versions():
    found = {p: said("dpkg-query", "-W", "-f", "${Version}", p) for p in PACKAGES}
    return {"python": platform.python_version(), "compiler": said("cc", "--version"), **{p: v for p, v in found.items() if v}}


def options(build):
    """The options of the build that change figures."""
    try:
        with open(os.path.join(build, "meson-info", "intro-buildoptions.json")) as f:
            return {o["name"]: o["value"] for o in json.load(f) if o["name"] in ("buildtype", "optimization", "b_ndebug", "b_lto", "b_sanitize", "c_args")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def revision():
    at = said("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD")
    changed = at and subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD"], capture_output=True).returncode
    return at + (", with changes" if changed else "") if at else "unknown"


def begin(build, figures):
    """The first line of a run."""
    version = find(r"version:\s*'([^']*)'", text_of(os.path.join(ROOT, "meson.build")))
    add("begin", format=FORMAT, date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), version=version, revision=revision(),
        figures=figures, machine=describe(), versions=versions(), options=options(build))


# --- from lines to one result ---

def collect(lines):
    """The result of a run whose lines these are. Lines that are cut off, as those of a run that was killed, count as a
    failure."""
    result = {"format": FORMAT, "scripts": [], "rows": [], "informs": [], "sweeps": [], "failures": []}
    lists = {"script": "scripts", "row": "rows", "inform": "informs", "sweep": "sweeps", "failed": "failures"}
    for text in lines:
        try:
            line = json.loads(text)
            kind = line.pop("kind")
        except (ValueError, KeyError, AttributeError, RecursionError):
            result["failures"].append({"script": "run", "figure": "a line", "reason": "a line of the run's file is no JSON object with a kind"})
            continue
        if kind == "begin":
            line.pop("script", None)
            result.update(line)
        elif kind in lists:
            result[lists[kind]].append(line)
    result["ended"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return result


# --- a result from a file: hostile until it is checked ---

def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def is_pair(x):
    return x is None or isinstance(x, list) and len(x) == 2 and all(map(is_number, x))


def is_word(x):
    return isinstance(x, str)


def is_object(x):
    return isinstance(x, dict)


def is_known(x):
    return x is None or is_number(x)


FIELDS = {
    "rows": {"script": is_word, "figure": is_word, "ours": is_word, "peer": is_word, "ratio": is_known, "at_most": lambda x: isinstance(x, bool)},
    "informs": {"script": is_word, "figure": is_word, "peer": is_word},
    "sweeps": {"script": is_word, "figure": is_word, "unit": is_word, "series": lambda x: isinstance(x, list)},
    "failures": {"script": is_word, "reason": is_word},
    "scripts": {"script": is_word, "status": is_number},
}
OPTIONAL = {"part": is_word, "must": is_known, "spread": is_pair, "aim": lambda x: is_known(x) or is_word(x), "figure": is_word, "seconds": is_known,
            "value_unit": is_word, "at_most": lambda x: isinstance(x, bool), "machine": lambda x: is_object(x) and is_known(x.get("line_ns"))}


def check_entry(name, entry):
    if not isinstance(entry, dict):
        raise Wrong(f"an element of {name} is no object")
    for field, good in FIELDS[name].items():
        if field not in entry or not good(entry[field]):
            raise Wrong(f"an element of {name} has no {field}, or a wrong one")
    for field, good in OPTIONAL.items():
        if field in entry and field not in FIELDS[name] and not good(entry[field]):
            raise Wrong(f"an element of {name} has a wrong {field}")


def check_series(sweep):
    for s in sweep["series"]:
        if not isinstance(s, dict) or not is_word(s.get("name")) or not isinstance(s.get("points"), list):
            raise Wrong("a series of a sweep has no name or no points")
        for p in s["points"]:
            if not isinstance(p, dict) or not is_number(p.get("size")) or not isinstance(p.get("values"), list) or not all(map(is_number, p["values"])):
                raise Wrong("a point of a sweep has no size or no values")


def check(result):
    """Fills in what is missing. Raises Wrong if something has another type."""
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise Wrong(f"it is no object with \"format\": {FORMAT}")
    for name in FIELDS:
        if not isinstance(result.setdefault(name, []), list):
            raise Wrong(f"{name} is no list")
        for entry in result[name]:
            check_entry(name, entry)
    for sweep in result["sweeps"]:
        check_series(sweep)
    for name in ("machine", "versions", "options"):
        if not is_object(result.setdefault(name, {})):
            raise Wrong(f"{name} is no object")
    for name in ("date", "ended", "version", "revision", "note"):
        if not is_word(result.setdefault(name, "")):
            raise Wrong(f"{name} is no text")
    figures = result.setdefault("figures", [])
    if not isinstance(figures, list) or not all(map(is_word, figures)):
        raise Wrong("figures is no list of names")
    return result


def finite(x):
    return is_number(x) and math.isfinite(x)


def load(path):
    try:
        with open(path, "rb") as f:
            raw = f.read(LIMIT + 1)
        if len(raw) > LIMIT:
            raise Wrong(f"it has more than {LIMIT >> 20} MiB")
        return check(json.loads(raw))
    except OSError as e:
        raise Wrong(e.strerror) from None
    except (ValueError, RecursionError):
        raise Wrong("it is no JSON") from None


if __name__ == "__main__":
    if len(sys.argv) >= 3 and sys.argv[1] == "begin":
        begin(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) == 5 and sys.argv[1] == "script":
        add("script", **{"script": sys.argv[2], "status": int(sys.argv[3]), "seconds": int(sys.argv[4])})
    else:
        sys.exit("usage: record.py begin BUILD FIGURE… | script NAME STATUS SECONDS")

# sweeps.py - one figure by message size: ours and its peers in turns, at each size
# see: bench/README.md, sweep.py
# SPDX-License-Identifier: MIT
import record
import measure as method
from measure import *
from words import short_size

ROUNDS = int(os.environ.get("BENCH_SWEEP_ROUNDS", "2"))
GIVE_UP = 2  # a setting that fails at so many sizes is left out at the others


class Sweep:
    """The series of one plot. better: min for latencies, max for bandwidths."""

    def __init__(self, figure, unit, better, sizes):
        self.figure, self.unit, self.better, self.sizes = figure, unit, better, sizes
        self.series, self.failed = [], []

    def add(self, name, *settings, ours=False, largest=None):
        """settings: functions of the size; the one with the best median counts. largest: no figure above this size."""
        self.series.append({"name": name, "ours": ours, "points": [], "settings": [(m, []) for m in settings], "largest": largest or max(self.sizes)})
        return self

    def measure_once(self, series, measure, failures, size, values):
        if len(failures) >= GIVE_UP or size in failures:
            return
        try:
            values.append(measure(size))
        except Failed as e:
            failures.append(size)
            self.failed.append((series["name"], size, str(e)))

    def at(self, size):
        """Each series once, ROUNDS times."""
        some = [s for s in self.series if size <= s["largest"]]
        got = {s["name"]: [[] for _ in s["settings"]] for s in some}
        for _ in range(ROUNDS):
            for s in some:
                for (measure, failures), values in zip(s["settings"], got[s["name"]]):
                    self.measure_once(s, measure, failures, size, values)
        for s in some:
            whole = [v for v in got[s["name"]] if v]
            if whole:
                s["points"].append({"size": size, "values": self.better(whole, key=statistics.median)})

    def say(self, size):
        cells = [f"{s['name']} {statistics.median(p['values']):.2f}" for s in self.series for p in s["points"] if p["size"] == size]
        print(f"  {short_size(size):>8}  " + ", ".join(cells), flush=True)

    def run(self):
        print(f"{self.figure}, {self.unit}", flush=True)
        for size in self.sizes:
            self.at(size)
            self.say(size)
        record.add("sweep", part=method.part, figure=self.figure, unit=self.unit, at_most=self.better is min, machine=method.machine(),
                   series=[{k: s[k] for k in ("name", "ours", "points")} for s in self.series])
        for name, size, why in self.failed:
            print(f"    n/a: {name}, {short_size(size)}: {why}", flush=True)
            record.add("failed", part=method.part, figure=f"{self.figure}: {name}, {short_size(size)}", reason=why)
        return not self.failed

# plot.py - SVG plots of a result: a figure by message size, and ratios with their spread
# see: bench/report, SVG 1.1. Colours are classes, so that the page's style sheet serves light and dark schemes
# SPDX-License-Identifier: MIT
import math, statistics
from html import escape
from words import short_size, value_text

WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 40
MARKS = 6  # shapes; also the number of colours
ROW = 36  # height of a row of ratios


def clean(text):
    """Text as XML may contain it."""
    good = "".join(c if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000" else "\ufffd" for c in str(text))
    return escape(good, quote=True)


def decades(low, high):
    """Ticks of a logarithmic axis: 1, 2, 5 of each decade if it is short, powers of ten otherwise."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [s * 10.0 ** e for e in range(first, last + 1) for s in steps]
    return [t for t in ticks if low <= t * 1.0001 and t <= high * 1.0001]


def mark(shape, x, y):
    """A point of the series with this number."""
    at = f'transform="translate({x:.1f} {y:.1f})" class="mark c{shape % MARKS}"'
    return (f'<circle {at} r="3.6"/>', f'<rect {at} x="-3.3" y="-3.3" width="6.6" height="6.6"/>', f'<path {at} d="M0-4.4 4.2 3.4-4.2 3.4Z"/>',
            f'<path {at} d="M0-4.8 4.8 0 0 4.8-4.8 0Z"/>', f'<path {at} d="M0 4.4 4.2-3.4-4.2-3.4Z"/>',
            f'<path {at} d="M-3.6-1.2h2.4v-2.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4Z"/>')[shape % MARKS]


def legend_mark(shape, dashed=True):
    kind = f"c{shape % MARKS} d{shape % MARKS}" if dashed else "c0"
    return f'<svg class="key" viewBox="-14 -7 28 14" aria-hidden="true"><path class="line {kind}" d="M-13 0H13"/>{mark(shape, 0, 0)}</svg>'


class Axes:
    def __init__(self, sizes, low, high):
        self.low, self.high = math.log10(low / 1.25), math.log10(high * 1.25)
        self.first, self.last = math.log2(min(sizes)), math.log2(max(sizes))

    def x(self, size):
        share = (math.log2(size) - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return LEFT + 8 + share * (WIDTH - LEFT - RIGHT - 16)

    def y(self, value):
        return HEIGHT - BOTTOM - (math.log10(value) - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def draw(self, sizes, unit):
        out = []
        for t in decades(10 ** self.low, 10 ** self.high):
            y = self.y(t)
            out.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/><text x="{LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{t:g}</text>')
        for n in sizes:
            out.append(f'<path class="grid" d="M{self.x(n):.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
                       f'<text x="{self.x(n):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{clean(short_size(n).replace("iB", ""))}</text>')
        out.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
        out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">message size, bytes (K, M: of 1024)</text>')
        out.append(f'<text transform="translate(11 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">{clean(unit)}</text>')
        return out


def drawable(points):
    """Points that a logarithmic plot can show: size, median, smallest, largest."""
    found = []
    for p in points:
        values = [v for v in p["values"] if 1e-12 < v < 1e15]
        if values and 0 < p["size"] < 1e15:
            found.append((p["size"], statistics.median(values), min(values), max(values)))
    return sorted(found)


def draw_series(i, name, points, axes, unit):
    out = []
    if len(points) > 1:
        d = "L".join(f"{axes.x(n):.1f} {axes.y(v):.1f}" for n, v, _, _ in points)
        out.append(f'<path class="line c{i % MARKS} d{i % MARKS}" d="M{d}"/>')
    for n, v, low, high in points:
        if high > low:
            out.append(f'<path class="line c{i % MARKS}" d="M{axes.x(n):.1f} {axes.y(low):.1f}V{axes.y(high):.1f}"/>')
        out.append(f'<g><title>{clean(name)}, {clean(short_size(n))}: {value_text(v)} {clean(unit)} ({value_text(low)} to {value_text(high)})</title>{mark(i, axes.x(n), axes.y(v))}</g>')
    return out


def sweep(title, unit, series, number):
    """The SVG of a sweep, or nothing if there is no point to draw. number: makes the ids unique."""
    lines = [(s["name"], drawable(s["points"])) for s in series]
    points = [p for _, ps in lines for p in ps]
    if not points:
        return ""
    sizes = sorted({p[0] for p in points})
    axes = Axes(sizes, min(p[2] for p in points), max(p[3] for p in points))
    what = "; ".join(f"{name}: {value_text(ps[0][1])} {unit} at {short_size(ps[0][0])}, {value_text(ps[-1][1])} {unit} at {short_size(ps[-1][0])}" for name, ps in lines if ps)
    out = [f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t{number} d{number}">'
           f'<title id="t{number}">{clean(title)}</title><desc id="d{number}">{clean(what)}</desc>']
    out += axes.draw(sizes if len(sizes) <= 8 else sizes[::len(sizes) // 8 + 1], unit)
    for i, (name, ps) in reversed(list(enumerate(lines))):  # ours are on top
        out += draw_series(i, name, ps, axes, unit)
    return "".join(out) + "</svg>"


# --- ratios ---

def goodness(row, ratio):
    """How many times as good as the peer: the ratio of bandwidths, the inverse of that of latencies; None if it cannot
    be drawn."""
    if not isinstance(ratio, (int, float)) or isinstance(ratio, bool) or not math.isfinite(ratio) or ratio <= 0:
        return None
    good = 1 / ratio if row["at_most"] else ratio
    return good if math.isfinite(good) and 1e-9 < good < 1e9 else None


def ratio_row(row, x, y):
    value, spread = goodness(row, row["ratio"]), [goodness(row, r) for r in row.get("spread") or []]
    must, aim = goodness(row, row.get("must")), goodness(row, row.get("aim"))
    out = [f'<text class="name" x="4" y="{y + 12}">{clean(row["figure"])}</text><path class="grid" d="M4 {y + 24}H{WIDTH - 4}"/>']
    for limit, name in ((must, "must"), (aim, "aim")):
        if limit:
            out.append(f'<path class="{name}" d="M{x(limit):.1f} {y + 16}V{y + 32}"><title>{name}: {limit:.2f}</title></path>')
    if len(spread) == 2 and all(spread):
        out.append(f'<path class="line c0" d="M{x(min(spread)):.1f} {y + 24}H{x(max(spread)):.1f}"/>')
    missed = value is not None and must is not None and value < must * (1 - 1e-9)
    out.append(f'<g><title>{clean(row["figure"])}: {value:.2f} times as good{", MISSED" if missed else ""}</title>{mark(3 if missed else 0, x(value), y + 24)}</g>')
    return out


def ratios(title, rows, number):
    """The SVG of the rows' ratios, to the right the better. Rows without a ratio are left out."""
    rows = [r for r in rows if goodness(r, r["ratio"]) is not None and not r.get("value_unit")]
    if not rows:
        return ""
    every = [goodness(r, v) for r in rows for v in (r["ratio"], r.get("must"), r.get("aim"), *(r.get("spread") or []))]
    low, high = min([0.5] + [v for v in every if v]), max([2] + [v for v in every if v])
    span = math.log10(high / low)
    height = ROW * len(rows) + 40

    def x(value):
        return 12 + math.log10(value / low) / span * (WIDTH - 24)
    out = [f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t{number}"><title id="t{number}">{clean(title)}</title>']
    ticks = decades(low, high)
    for t in ticks if len(ticks) <= 10 else [t for t in ticks if f"{t:e}"[0] == "1"]:
        out.append(f'<path class="{"axis" if t == 1 else "grid"}" d="M{x(t):.1f} 4V{height - 34}"/><text x="{x(t):.1f}" y="{height - 22}" text-anchor="middle">{t:g}</text>')
    for i, row in enumerate(rows):
        out += ratio_row(row, x, ROW * i)
    out.append(f'<text x="{WIDTH / 2}" y="{height - 6}" text-anchor="middle">times as good as the peer, better to the right</text></svg>')
    return "".join(out)

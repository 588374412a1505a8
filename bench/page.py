# page.py - one HTML page of a result: no other file, no script
# see: bench/report, plot.py. The page is well-formed XML too, so that a test can read it
# SPDX-License-Identifier: MIT
import statistics

import plot
from plot import clean
from words import *

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--box:#f4f6f8;--edge:#c4ccd4;--bad:#b3261e;--good:#116329;
--c0:#0060a8;--c1:#b34700;--c2:#007a5a;--c3:#9b3080;--c4:#7a6200;--c5:#50565c}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e3e8ee;--dim:#a0abb6;--box:#1d232a;--edge:#414b56;--bad:#ff8f85;--good:#7ddc95;
--c0:#62b6f7;--c1:#ff9c54;--c2:#3fd0a5;--c3:#ee9ad6;--c4:#e5cd5e;--c5:#b7c0c9}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:12px 16px 40px;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5em;margin:.4em 0}h2{font-size:1.2em;margin:1.8em 0 .5em;border-bottom:1px solid var(--edge)}h3{font-size:1em;margin:0 0 .3em}
p{margin:.4em 0;max-width:75ch}.dim{color:var(--dim)}.bad{color:var(--bad);font-weight:600}.good{color:var(--good);font-weight:600}
.grid2{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr));gap:16px;align-items:start}
.wide{grid-template-columns:repeat(auto-fill,minmax(min(100%,580px),1fr))}
.card{background:var(--box);border:1px solid var(--edge);border-radius:8px;padding:10px 12px;min-width:0}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.88em;overflow-wrap:normal}
th,td{padding:3px 9px;text-align:right;border-bottom:1px solid var(--edge);white-space:nowrap;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left;white-space:normal;min-width:13em}thead th{color:var(--dim);font-weight:600;vertical-align:bottom}
th[scope=row]{font-weight:400}
@media(max-width:600px){table{font-size:.78em}th,td{padding:3px 4px}th:first-child,td:first-child{min-width:9em}}
.facts th:first-child{min-width:9em;width:12em}.facts td,.facts th{text-align:left;white-space:normal}
svg.plot{display:block;width:100%;height:auto;max-width:440px;font-size:11px}svg.plot text{fill:var(--fg)}svg.plot text.name{paint-order:stroke;stroke:var(--box);stroke-width:4px}
svg .grid{stroke:var(--edge);stroke-width:.6;fill:none}svg .axis{stroke:var(--dim);fill:none}
svg .line{fill:none;stroke-width:2}svg .mark{stroke:var(--box);stroke-width:.8}
svg .must{stroke:var(--bad);stroke-width:2}svg .aim{stroke:var(--good);stroke-width:2;stroke-dasharray:3 2}
svg .line.c0{stroke:var(--c0)}svg .line.c1{stroke:var(--c1)}svg .line.c2{stroke:var(--c2)}svg .line.c3{stroke:var(--c3)}svg .line.c4{stroke:var(--c4)}svg .line.c5{stroke:var(--c5)}
svg .mark.c0{fill:var(--c0)}svg .mark.c1{fill:var(--c1)}svg .mark.c2{fill:var(--c2)}svg .mark.c3{fill:var(--c3)}svg .mark.c4{fill:var(--c4)}svg .mark.c5{fill:var(--c5)}
svg .d1{stroke-dasharray:7 3}svg .d2{stroke-dasharray:2 3}svg .d3{stroke-dasharray:8 3 2 3}svg .d4{stroke-dasharray:4 2}svg .d5{stroke-dasharray:1 2}
svg.key{width:28px;height:14px;vertical-align:-2px;margin-right:5px}
ul.legend{list-style:none;margin:.3em 0;padding:0;display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.86em}
details{margin-top:.5em}summary{cursor:pointer;color:var(--dim)}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:4px 16px}a{color:var(--c0)}
"""

WORDS = {"cores_of_the_machine": "cores of the machine", "memory_gib": "memory, GiB", "threads_per_core": "threads per core", "huge_pages": "transparent huge pages",
         "congestion_control": "TCP congestion controls", "load_average": "load average before the run"}


def table(head, rows, kind=""):
    """rows: lists of cells that are already clean."""
    top = "".join(f'<th scope="col">{clean(c)}</th>' for c in head)
    body = "".join("<tr>" + "".join(f'<th scope="row">{c}</th>' if i == 0 else f"<td>{c}</td>" for i, c in enumerate(row)) + "</tr>" for row in rows)
    thead = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f'<div class="scroll" tabindex="0"><table class="{kind}">{thead}<tbody>{body}</tbody></table></div>'


def section(name, title, *parts):
    return f'<section id="{name}"><h2>{clean(title)}</h2>{"".join(parts)}</section>'


# --- what and where ---

def lines_ns(result):
    found = sorted(r["machine"]["line_ns"] for r in result["rows"] + result["sweeps"] if plot.math.isfinite(r.get("machine", {}).get("line_ns", 0) or 0) and r.get("machine", {}).get("line_ns"))
    return f"{found[0]:.0f} to {found[-1]:.0f} ns, median {statistics.median(found):.0f} ns" if found else "not measured"


def plain(value):
    return value_text(value) if isinstance(value, float) else "yes" if value is True else "no" if value is False else str(value)


def machine(result):
    facts = [("time of a cache line between the two cores", lines_ns(result))]
    facts += [(WORDS.get(k, k), plain(v)) for k, v in result["machine"].items()]
    programs = [(k, plain(v)) for k, v in result["versions"].items()]
    build = [("Verbena", f"{result['version']}, revision {result['revision'] or 'unknown'}")] + [(k, plain(v)) for k, v in result["options"].items()]
    cards = [(name, rows) for name, rows in (("Machine", facts), ("Programs", programs), ("Build", build)) if rows]
    return section("machine", "Machine", '<div class="grid2">', *(f'<div class="card"><h3>{name}</h3>'
                   f'{table((), [[clean(a), clean(b)] for a, b in rows], "facts")}</div>' for name, rows in cards), "</div>")


def without_figures(result):
    """Scripts that were to be run and gave nothing."""
    gave = {x["script"].rpartition(".")[0] or x["script"] for name in ("rows", "sweeps", "informs") for x in result[name]}
    return [f for f in result["figures"] if (f.rpartition(".")[0] or f) not in gave]


def ended_badly(result):
    return [s for s in result["scripts"] if s["status"] not in (0, 1)]


def verdict(result):
    missed = [r for r in result["rows"] if is_missed(r)]
    silent = without_figures(result)
    parts = [f'<p>{len(result["rows"])} figures with a ratio, {len(result["sweeps"])} sweeps over message sizes. '
             f'<span class="{"bad" if missed else "good"}">{len(missed)} missed what they must reach.</span> '
             f'<span class="{"bad" if result["failures"] or silent else "good"}">{len(result["failures"])} measurements failed, '
             f'scripts without a figure: {len(silent)}.</span></p>']
    if not result["rows"] and not result["sweeps"]:
        parts.append('<p class="bad">This result contains no figures.</p>')
    if missed:
        parts.append("<h3>Missed</h3>" + rows_table(missed, True))
    if result["failures"]:
        parts.append("<h3>Not measured</h3>" + table(("script", "figure", "reason"), [
            [clean(f["script"]), clean(" · ".join(x for x in (f.get("part"), f.get("figure")) if x)), clean(f["reason"])] for f in result["failures"]], "facts"))
    if silent:
        parts.append(f'<p class="bad">No figure came from: {clean(", ".join(silent))}.</p>')
    for s in ended_badly(result):
        parts.append(f'<p class="bad">{clean(s["script"])} ended with status {plain(s["status"])}.</p>')
    return section("summary", "Summary", *parts)


# --- figures ---

def ratios_at(sweep, size):
    """The ratios of ours to each peer at a size, in the order of the peers."""
    ours, peers = [], []
    for s in sweep["series"]:
        medians = [statistics.median(p["values"]) for p in s["points"] if p["size"] == size and p["values"]]
        (ours if s.get("ours") else peers).append(medians[0] if medians else None)
    mine = next((x for x in ours if x is not None), None)
    return [mine / p if mine is not None and p else None for p in peers]


def sweep_table(sweep):
    sizes = sorted({p["size"] for s in sweep["series"] for p in s["points"]})
    head = ["size", *(s["name"] for s in sweep["series"])]
    peers = [s["name"] for s in sweep["series"] if not s.get("ours")]
    head += [f"ratio to {p}" for p in peers] if len(peers) < len(sweep["series"]) else []
    rows = []
    for size in sizes:
        cells = [clean(short_size(size))]
        for s in sweep["series"]:
            values = [v for p in s["points"] if p["size"] == size for v in p["values"]]
            cells.append(f"{value_text(statistics.median(values))} <span class=\"dim\">({value_text(min(values))}…{value_text(max(values))})</span>" if values else "n/a")
        rows.append(cells + [value_text(r) for r in (ratios_at(sweep, size) if len(peers) < len(sweep["series"]) else [])])
    return table(head, rows)


def sweep_card(sweep, number):
    drawn = plot.sweep(sweep["figure"], sweep["unit"], sweep["series"], number) or '<p class="bad">Nothing was measured.</p>'
    legend = "".join(f"<li>{plot.legend_mark(i)}{'<strong>' if s.get('ours') else ''}{clean(s['name'])}{' (Verbena)</strong>' if s.get('ours') else ''}</li>" for i, s in enumerate(sweep["series"]))
    better = "lower is better" if sweep.get("at_most") else "higher is better"
    return (f'<figure class="card" style="margin:0"><figcaption><h3>{clean(sweep["figure"])}</h3><span class="dim">{clean(sweep["unit"])}, {better}</span></figcaption>'
            f'{drawn}<ul class="legend">{legend}</ul><details><summary>Numbers: medians, smallest and largest</summary>{sweep_table(sweep)}</details></figure>')


def rows_table(rows, with_part=False):
    """with_part: the title of a row includes its part, because rows of several parts are together."""
    body = []
    for r in rows:
        bad = '<span class="bad">missed</span>' if is_missed(r) else ""
        line_ns = r.get("machine", {}).get("line_ns")
        title = " · ".join(x for x in (r.get("part") if with_part else "", r["figure"]) if x)
        body.append([clean(title), clean(r["ours"]), clean(r["peer"]), f"<strong>{clean(ratio_text(r))}</strong>", clean(spread_text(r)), clean(limit_text(r, "must")),
                     clean(limit_text(r, "aim")), bad, f"{value_text(line_ns)} ns" if line_ns else ""])
    return table(("figure", "Verbena", "peer", "ratio", "spread", "must", "aim", "", "cache line"), body)


def informs_table(informs):
    return table(("beside them", "measured", "spread"), [[clean(i["figure"]), clean(i["peer"]), clean(spread_text(i))] for i in informs])


def parts_of(result):
    """(script, part): its rows, and the figures beside them, in the order of the run."""
    groups = {}
    for name in ("rows", "informs"):
        for x in result[name]:
            groups.setdefault((x["script"], x.get("part") or ""), {"rows": [], "informs": []})[name].append(x)
    return groups


def group_card(script, part, group, number):
    title = f"{script}: {part}" if part else script
    drawn = plot.ratios(title, group["rows"], number)
    legend = ('<ul class="legend"><li>' + plot.legend_mark(0) + 'median and spread of the ratio</li><li>' + plot.legend_mark(3, False) + 'the same, must missed</li><li><svg class="key" viewBox="-14 -7 28 14" aria-hidden="true">'
              '<path class="must" d="M0-7V7"/></svg>must</li><li><svg class="key" viewBox="-14 -7 28 14" aria-hidden="true"><path class="aim" d="M0-7V7"/></svg>aim</li></ul>') if drawn else ""
    return (f'<div class="card"><h3>{clean(title)}</h3>{drawn}{legend}{rows_table(group["rows"]) if group["rows"] else ""}'
            f'{informs_table(group["informs"]) if group["informs"] else ""}</div>')


METHOD = """<p>Verbena and its peer are measured one right after the other on the same two cores, several times. A row shows medians, and the median of
the pairs' ratios (Verbena's figure divided by the peer's) with the smallest and the largest. Above 1 is better for bandwidths and rates, below 1 for latencies
and times; the plots of ratios turn latencies round, so that the right is always better. <em>Must</em> is what a row is required to reach, <em>aim</em> what is
hoped for. <em>Cache line</em> is the time that a cache line takes between the two cores: it says in which state a virtual machine was. Sweeps use fewer and
shorter rounds than rows. bench/README.md has the rest.</p>"""


def render(result):
    number = iter(range(1, 1 << 30))
    sweeps = "".join(sweep_card(s, next(number)) for s in result["sweeps"])
    groups = "".join(group_card(script, part, g, next(number)) for (script, part), g in parts_of(result).items())
    date = clean(result["date"].replace("T", " ").replace("Z", " UTC")) or "of an unknown date"
    nav = "".join(f'<li><a href="#{a}">{b}</a></li>' for a, b in (("summary", "Summary"), ("sizes", "By message size"), ("ratios", "Beside peers"), ("machine", "Machine"), ("method", "Method")))
    return "\n".join(['<!DOCTYPE html>', '<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>',
                      f"<title>Verbena: figures, {date}</title><style>{STYLE}</style></head><body>",
                      f'<header><h1>Verbena: figures</h1><p class="dim">Begun {date}, ended {clean(result["ended"].replace("T", " ").replace("Z", " UTC")) or "unknown"}. '
                      f'{clean(result["machine"].get("processor", "Unknown processor"))}, {clean(plain(result["machine"].get("cores", "?")))} cores, Linux {clean(plain(result["machine"].get("kernel", "?")))}, '
                      f'revision {clean(result["revision"] or "unknown")}.</p>{"<p>" + clean(result["note"]) + "</p>" if result["note"] else ""}<nav><ul>{nav}</ul></nav></header><main>',
                      verdict(result), section("sizes", "By message size", f'<div class="grid2">{sweeps}</div>' if sweeps else "<p>No sweep was measured.</p>"),
                      section("ratios", "Beside peers", f'<div class="grid2 wide">{groups}</div>' if groups else "<p>No row was measured.</p>"),
                      machine(result), section("method", "Method", METHOD), "</main></body></html>", ""])

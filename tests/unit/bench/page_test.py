# page_test.py - the page of a run: whole, alone, well-formed, with each row and number, and with hostile strings as text
# see: bench/report, bench/page.py
# SPDX-License-Identifier: MIT
# usage: page_test.py SOURCE
import copy, json, math, os, re, subprocess, sys, tempfile
import xml.etree.ElementTree as tree

SOURCE = sys.argv[1]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fixture, page, plot, record, words

failed = 0


def check(sentence, good, why=""):
    global failed
    print(f"{'ok' if good else 'not ok'} {sentence}" + ("" if good else f": {why}"))
    failed += not good


def report(text, directory):
    """bench/report of this text: (status, what it said on standard error)"""
    path = os.path.join(directory, "rows")
    with open(path, "w") as f:
        f.write(text)
    p = subprocess.run([os.path.join(SOURCE, "bench", "report"), path, directory], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return p.returncode, p.stderr


def parsed(html):
    """The page as XML; the document type is that of HTML."""
    return tree.fromstring(html.replace("<!DOCTYPE html>", "", 1))


def all_text(root):
    return " ".join("".join(root.itertext()).split())


def attributes(root):
    return [(e.tag, name, value) for e in root.iter() for name, value in e.attrib.items()]


def as_text(string):
    """What an escaped string reads as."""
    return " ".join(re.sub("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", string).split())


def strings(value):
    if isinstance(value, dict):
        return [s for v in value.values() for s in strings(v)]
    if isinstance(value, list):
        return [s for v in value for s in strings(v)]
    return [value] if isinstance(value, str) and value else []


def alone(root, html):
    tags = {e.tag for e in root.iter()}
    check("it has no script, frame, image, form or link to a style", not tags & {"script", "iframe", "img", "object", "embed", "form", "link", "base", "audio", "video", "use", "image", "input"}, tags)
    check("it refers to nothing but itself", not [a for a in attributes(root) if a[1] in ("href", "src", "srcset", "action", "data", "poster") and not a[2].startswith("#")], attributes(root))
    check("no attribute is an event", not [a for a in attributes(root) if a[1].startswith("on")])
    style = "".join(e.text or "" for e in root.iter("style"))
    check("its style fetches nothing", not re.search(r"url\(|@import|//", style) and len(list(root.iter("style"))) == 1)
    names = [v for _, n, v in attributes(root) if n == "id"]
    check("ids are unique, and all that is referred to is there", len(names) == len(set(names)) and all(
        x in names for _, n, v in attributes(root) if n == "aria-labelledby" for x in v.split()) and all(v[1:] in names for _, n, v in attributes(root) if n == "href"))
    check("http is only what a row said", len(re.findall("https?:", html)) == html.count("http://evil.example/x"), re.findall("https?:.{20}", html))


def complete(result, text):
    for name in ("rows", "informs", "failures", "sweeps"):
        for entry in result[name]:
            missing = [s for s in strings(entry) if s not in ("none", "sweep.py", "sweep") and as_text(s) not in text]
            check(f"each word of an entry of {name} is shown", not missing, missing)
    missing = [s for s in strings({k: result[k] for k in ("version", "revision", "note", "machine", "versions")}) if as_text(s) not in text]
    check("the machine and the versions are shown", not missing, missing)
    numbers = [r["ratio"] for r in result["rows"]] + [x for r in result["rows"] + result["informs"] for x in r.get("spread") or []]
    numbers += [r[n] for r in result["rows"] for n in ("must", "aim") if isinstance(r[n], float)]
    shown = [words.value_text(n) for n in numbers if n is not None] + [f"{n:.4g}" for r in result["rows"] for n in [r["must"]] if n]
    check("each ratio, spread, must and aim is shown", not [n for n in shown if n not in text], [n for n in shown if n not in text])
    values = [p["values"] for s in result["sweeps"] for x in s["series"] for p in x["points"]]
    check("each median, smallest and largest of a sweep is shown", not [v for vs in values for v in (min(vs), max(vs), page.statistics.median(vs)) if words.value_text(v) not in text])
    check("what was measured elsewhere is said to be missing", "No figure came from: gave_nothing" in text and "wire.sh ended with status 2" in text and "Nothing was measured" in text)
    check("a missed must is said to be missed", "1 missed what they must reach" in text and "missed" in text.lower())


def drawn(root):
    plots = [e for e in root.iter("svg") if e.get("class") == "plot"]
    check("there are plots of sweeps and of ratios", len(plots) >= 4, len(plots))
    check("each plot has a title, and axes with a unit", all(e.find("title") is not None and [t for t in e.iter("text") if t.text] for e in plots))
    coordinates = [float(n) for e in root.iter("path") for n in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", e.get("d"))]
    check("no coordinate is NaN, infinite or far outside", "nan" not in "".join(e.get("d") for e in root.iter("path")) and "inf" not in "".join(e.get("d") for e in root.iter("path"))
          and all(math.isfinite(c) and -50 <= c <= 5000 for c in coordinates))
    check("what has a colour also has a shape or a dash of its own", len({plot.mark(i, 0, 0).split()[0] + plot.mark(i, 0, 0).split(' d="')[-1] for i in range(plot.MARKS)}) == plot.MARKS)
    check("tables scroll in a box of their own", [e for e in root.iter("div") if e.get("class") == "scroll"] and not [t for e in root.iter() if e.get("class") != "scroll" for t in e if t.tag == "table"])
    check("it has styles for dark schemes and small screens", any("prefers-color-scheme:dark" in (e.text or "") for e in root.iter("style")) and any(
        e.get("name") == "viewport" for e in root.iter("meta")))


def whole(directory):
    result = fixture.result()
    status, said = report(json.dumps(result), directory)
    check("a page is made", status == 0, said)
    with open(os.path.join(directory, "figures.html"), encoding="utf-8") as f:
        html = f.read()
    try:
        root = parsed(html)
    except tree.ParseError as e:
        return check("the page is well-formed", False, e)
    check("the page is well-formed", True)
    text = all_text(root)
    alone(root, html)
    complete(result, text)
    drawn(root)
    with open(os.path.join(directory, "figures.txt"), encoding="utf-8") as f:
        summary = f.read()
    check("the summary has each row, and no control character", all(r["ours"] in summary for r in result["rows"] if r["ours"].isprintable()) and not re.search("[\x00-\x09\x0b-\x1f]", summary))
    with open(os.path.join(directory, "figures.json"), encoding="utf-8") as f:
        again = json.load(f)
    check("the JSON beside it says the same", json.dumps(again["rows"]) == json.dumps(result["rows"]) and json.dumps(again["sweeps"]) == json.dumps(result["sweeps"]))


def lines(directory):
    """The file of a run that was killed."""
    result = fixture.result()
    text = json.dumps({"kind": "begin", "format": 1, "date": result["date"], "figures": ["send_lat", "idle"], "machine": {}}) + "\n"
    text += json.dumps({"kind": "row", **result["rows"][0]}) + "\n" + json.dumps({"kind": "row", **result["rows"][1]})[:40]
    status, said = report(text, directory)
    with open(os.path.join(directory, "figures.html"), encoding="utf-8") as f:
        seen = all_text(parsed(f.read()))
    check("of a run that was cut off the rows are shown, and what is missing is said", status == 0 and "0.913" not in seen and "0.91" in seen and "No figure came from: idle" in seen
          and "no JSON object" in seen, said)
    status, said = report("", directory)
    with open(os.path.join(directory, "figures.html"), encoding="utf-8") as f:
        seen = all_text(parsed(f.read()))
    check("of a run without figures there is a page that says so", status == 0 and "contains no figures" in seen, said)


def spoilt(directory):
    """A result with one value of another type: a page or one clear line, never a traceback."""
    kinds = [None, [], {}, "x", -1, 1e308, True, [1], ["x"], {"size": 1}]
    base, bad, tried = fixture.result(), [], 0

    def places(value, path=()):
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield path + (key,)
            yield from places(inner, path + (key,))
    for path in list(places(base)):
        for kind in kinds:
            wrong = copy.deepcopy(base)
            at = wrong
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = kind
            tried += 1
            try:
                parsed(page.render(record.check(wrong)))
            except record.Wrong:
                pass
            except Exception as e:
                bad.append((path, kind, repr(e)))
    check(f"each of {tried} results with a wrong value gives a page or a clear refusal", not bad, bad[:3])
    for text in ("[" * 100000, '{"format": 1, "rows": 7}', '{"format": 2}', '{"format": 1, "rows": [{}]}', '{"format": 1, "sweeps": [{"script": "x", "figure": "x", "unit": "x", "series": [{}]}]}'):
        status, said = report(text, directory)
        check(f"{text[:30]} is refused with one line, or shown as a failure", status in (0, 2) and "Traceback" not in said and said.count("\n") <= 1, said)


with tempfile.TemporaryDirectory(prefix="verbena-page-") as d:
    whole(d)
    lines(d)
    spoilt(d)
sys.exit(1 if failed else 0)

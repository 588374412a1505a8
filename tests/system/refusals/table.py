# table.py - the table of refusals: compares a path's lines with it, takes new lines into it, writes docs/errors.md
# SPDX-License-Identifier: MIT
#
# usage: table.py differ TABLE COLUMN LINES     the names of the cases that differ; fails if there are some
#        table.py check TABLE COLUMN LINES      the same, with what was expected
#        table.py mixed TABLE COLUMN LINES      the lines of to-rxe or from-rxe: each part is as one of the two ends has it
#        table.py update TABLE COLUMN LINES     takes the lines into the table
#        table.py lint TABLE SOURCE NAMES       each difference has its reason, each status and event its place
#        table.py document TABLE                prints docs/errors.md
#
# The table has lines of four kinds, and comments:
#   reason TAG: TEXT                 why something deviates; TEXT begins with "deviates:"
#   CASE [(TAG)]: OUTCOME            on one host, and wherever no other line follows; TAG: it deviates from the standard
#   <tab>COLUMN (TAG): OUTCOME       another outcome of the case above: ring, copy (one host), roce, iwarp; rxe: the kernel's;
#                                    to-rxe, from-rxe: one end of each, where neither has such an outcome by itself
#   fabric and packets are columns without lines: by LID on a simulated fabric, in shared memory and packet by packet. There
#   everything is as on one host and as by RoCE, but a datagram has no GRH
#   name NAME: WHERE                 a status or event that no case shows: the test that does, or why none can
import os
import re
import sys

BY_LID = {"fabric": "host", "packets": "roce"}
HERE = ("host", "ring", "copy", "roce", "iwarp")  # columns of Verbena
CASE = re.compile(r"((?:rc|uc|ud|xrc) \S+ \S+)(?: \((\S+)\))?: (.*)")
NOT_RXE = re.compile(r".* over-2-gib|.* no-address-handle|ud (write|read|compare-swap|fetch-add|local-inv|send-inv|bind-).*|xrc .*|.* (flush|atomic-write) .*|.*inv window-2-invalidated")
NOT_IWARP = re.compile(r".*(post-in-rtr|peer-in-rtr)|rc flush .*|rc atomic-write (?!nothing).*")
OTHER = re.compile(r"\t(\S+) \((\S+)\): (.*)")


class Table:
    def __init__(self, path):
        self.path, self.head, self.reasons, self.names = path, [], {}, {}
        self.cases, self.tags, self.others = {}, {}, {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                for number, line in enumerate(f, 1):
                    self.read(line.rstrip("\n"), number)

    def read(self, line, number):
        if not line or line.startswith("#"):
            if not self.cases and not self.reasons:
                self.head.append(line)
        elif m := re.match(r"reason (\S+): (.*)", line):
            self.reasons[m[1]] = m[2]
        elif m := re.match(r"name (\S+): (.*)", line):
            self.names[m[1]] = m[2]
        elif m := CASE.fullmatch(line):
            self.last = m[1]
            self.cases[m[1]], self.tags[m[1]], self.others[m[1]] = m[3], m[2], {}
        elif m := OTHER.fullmatch(line):
            self.others[self.last][m[1]] = (m[2], m[3])
        else:
            sys.exit(f"{self.path}:{number}: not a line of the table: {line}")

    def write(self):
        with open(self.path, "w", encoding="utf-8") as f:
            print(*self.head, sep="\n", file=f)
            for tag, text in self.reasons.items():
                print(f"reason {tag}: {text}", file=f)
            for name, where in self.names.items():
                print(f"name {name}: {where}", file=f)
            for case, outcome in self.cases.items():
                tag = f" ({self.tags[case]})" if self.tags[case] else ""
                print(f"{case}{tag}: {outcome}", file=f)
                for column, (why, other) in self.others[case].items():
                    print(f"\t{column} ({why}): {other}", file=f)

    def expected(self, case, column):
        if column in BY_LID:
            return (self.expected(case, BY_LID[column]) or "").replace("/grh", "")
        other = self.others.get(case, {}).get(column)
        return other[1] if other else self.cases.get(case)

    def belongs(self, case, column):
        if column == "iwarp":  # a connection is of one type, and goes from INIT to RTS; ends.c: end_supports
            return case.startswith("rc ") and not NOT_IWARP.fullmatch(case)
        return column != "rxe" or not NOT_RXE.fullmatch(case)  # tests/interop/refusals.sh says why


def lines_of(path):
    """The last line of each case: a case that differs is repeated."""
    seen = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            m = CASE.fullmatch(line.rstrip("\n"))
            if not m:
                sys.exit(f"{path}: not a line of a case: {line}")
            seen[m[1]] = m[3]
    return seen


def differences(table, column, seen):
    for case in table.cases:
        if case not in seen and table.belongs(case, column):
            yield case, table.expected(case, column), "not run"
    for case, outcome in seen.items():
        if outcome != table.expected(case, column):
            yield case, table.expected(case, column), outcome


PARTS = re.compile(r"post (.*); send (.*); receive (.*); states (\S+) (\S+); events (\S+) (\S+); memory (.*)")


def fits(table, case, column, outcome):
    """Is each part of the outcome as it is between two Verbenas by RoCE, or between two of rxe?"""
    if column in table.others.get(case, {}):
        return outcome == table.expected(case, column)
    roce, rxe = (PARTS.fullmatch(table.expected(case, c)).groups() for c in ("roce", "rxe"))
    here = PARTS.fullmatch(outcome).groups()
    asks = roce if column == "to-rxe" else rxe
    return here[0] == asks[0] and all(part in both for part, both in zip(here, zip(roce, rxe)))


def mixed(table, column, lines):
    seen, bad = lines_of(lines), False
    for case in table.cases:
        if case not in seen and table.belongs(case, "rxe") and not case.endswith("peer-program-ended"):
            print(f"{column}: {case}: not run")
            bad = True
    for case, outcome in seen.items():
        if not fits(table, case, column, outcome):
            print(f"{column}: {case}\n  roce: {table.expected(case, 'roce')}\n  rxe:  {table.expected(case, 'rxe')}\n  here: {outcome}")
            bad = True
    return bad


def differ(table, column, lines):
    found = [case for case, _, _ in differences(table, column, lines_of(lines))]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


def check(table, column, lines):
    bad = False
    for case, expected, outcome in differences(table, column, lines_of(lines)):
        print(f"{column}: {case}\n  table: {expected}\n  here:  {outcome}")
        bad = True
    return bad


def update(table, column, lines):
    for case, outcome in lines_of(lines).items():
        if case not in table.cases or column == "host":
            table.cases[case] = outcome
            table.tags.setdefault(case, None)
            table.others.setdefault(case, {})
        others = table.others[case]
        if outcome == table.cases[case]:
            others.pop(column, None)
        elif column != "host":
            others[column] = (others.get(column, ("unexplained",))[0], outcome)
        for name in [name for name, (_, other) in others.items() if other == table.cases[case]]:
            del others[name]
    table.write()


def used_tags(table):
    tags = {tag for tag in table.tags.values() if tag}
    for others in table.others.values():
        tags |= {tag for tag, _ in others.values()}
    return tags


def lint_reasons(table):
    used = used_tags(table)
    for tag in sorted(used - set(table.reasons)):
        yield f"the reason {tag} is missing"
    for tag in sorted(set(table.reasons) - used):
        yield f"the reason {tag} is not used"
    for tag, text in table.reasons.items():
        if not text.startswith("deviates: "):
            yield f"the reason {tag} does not begin with deviates:"
    for case, others in table.others.items():
        for column, (_, outcome) in others.items():
            if outcome == table.cases[case] and column not in ("to-rxe", "from-rxe"):
                yield f"{case}: {column} does not differ"


def lint_names(table, source, names):
    text = " ".join(table.cases.values()) + " " + " ".join(o for others in table.others.values() for c, (_, o) in others.items()
                                                            if c in HERE)
    words = set(re.findall(r"[A-Z_]+", text))
    for name in names:
        short = name.replace("IBV_WC_", "").replace("IBV_EVENT_", "")
        where = table.names.get(name)
        if not where and short not in words:
            yield f"no case shows {name}, and no line says where it is shown"
        for path in re.findall(r"tests/\S+\.(?:c|sh)", where or ""):
            with open(os.path.join(source, path), encoding="utf-8") as f:
                if name not in f.read():
                    yield f"{path} does not show {name}"
    for name in set(table.names) - set(names):
        yield f"there is no {name}"


def lint(table, source, names):
    with open(names, encoding="utf-8") as f:
        wrong = list(lint_reasons(table)) + list(lint_names(table, source, f.read().split()))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong)


# --- the document ---

TITLES = {"ring": "*one host, by ring:* ", "copy": "*one host, one copy:* ", "roce": "*RoCE:* ", "iwarp": "*iWARP:* ", "rxe": "*rxe:* ",
          "to-rxe": "*Verbena to rxe:* ", "from-rxe": "*rxe to Verbena:* "}


def row(who, outcome, tag):
    m = PARTS.fullmatch(outcome)
    post, send, receive, ours, theirs, our_event, their_event, memory = m.groups()
    done = post if post != "0" else send
    cells = (who, done, receive.replace(" ", ", "), f"{ours}, {theirs}", f"{our_event}, {their_event}", memory.replace(" ", ", "))
    return "| " + " | ".join(cells) + (f" [{tag}](#{tag})" if tag else "") + " |"


def rows_of(table, wrong):
    """One row for all operations with the same outcome."""
    groups = {}
    for case, outcome in table.cases.items():
        kind, operation, what = case.split()
        if what != wrong:
            continue
        who = f"{kind.upper()} {operation}"
        groups.setdefault(("", outcome, table.tags[case] or ""), []).append(who)
        for column, (tag, other) in table.others[case].items():
            groups.setdefault((column, other, tag), []).append(who)
    for (column, outcome, tag), who in sorted(groups.items(), key=lambda g: ("", *TITLES).index(g[0][0])):
        names = {"": "", **TITLES}
        yield row(names[column] + ", ".join(who), outcome, tag)


INTRODUCTION = """# Errors

What becomes of every wrong use of every operation. This page is written by `tests/system/refusals/table.py document`
from tests/system/refusals/table, which the test `refusals` compares with what happens on one host, by RoCE and by iWARP;
tests/interop/refusals.sh compares it with the kernel's rxe, and with one end of each kind. A row without a name of a path
holds for all that have no row of their own. By LID on a simulated fabric (tests/system/fabric/verbs.sh) all is as on one
host, or packet by packet as by RoCE, except that a datagram has no GRH.

The columns are: the operations; what ibv_post_send returns, or else the status of the request's completion (with the
opcode, if it succeeds); the completions of the two posted receives (with opcode, byte_len and flags); the states of both
queue pairs afterwards, the requester's first; the asynchronous events of both; how much of the memory that the request
should have changed has changed: the responder's, then the requester's for operations with an answer. `-large` is a
message of 20,000 bytes, otherwise one has 64. `-` is nothing. Of XRC the responder is a target with a shared receive
queue. `bind-1` is ibv_bind_mw of a window of type 1, `bind-2` IBV_WR_BIND_MW of one of type 2B. `window-…`: the request
names the key of a window, which is bound to a part of a region that has no remote rights.
"""


def document(table):
    print(INTRODUCTION)
    print("## Why some differ\n")
    for tag, text in table.reasons.items():
        print(f"<a id=\"{tag}\"></a>**{tag}**: {text}\n")
    wrongs = list(dict.fromkeys(case.split()[2] for case in table.cases))
    for wrong in wrongs:
        print(f"## {wrong}\n\n| operations | posted or completed | receives | states | events | memory |\n|---|---|---|---|---|---|")
        print(*rows_of(table, wrong), sep="\n")
        print()
    print("## Statuses and events that no case shows\n\n| name | where |\n|---|---|")
    for name, where in table.names.items():
        print(f"| {name} | {where} |")


def main():
    commands = {"differ": differ, "check": check, "mixed": mixed, "update": update, "lint": lint, "document": document}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__ or "see the head of this file")
    sys.exit(commands[sys.argv[1]](Table(sys.argv[2]), *sys.argv[3:]))


main()

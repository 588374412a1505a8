# words.py - how figures are written, on a terminal and in documents
# see: bench/README.md
# SPDX-License-Identifier: MIT
import math


def short_size(n):
    """64 B, 4 KiB, 1 MiB"""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= factor and n % factor == 0:
            return f"{n // factor:g} {unit}"
    return f"{n:g} B"


def value_text(v):
    """Three digits that mean something."""
    if v is None or isinstance(v, bool) or not isinstance(v, (int, float)) or not math.isfinite(v):
        return "n/a"
    return f"{v:.0f}" if abs(v) >= 100 else f"{v:.1f}" if abs(v) >= 10 else f"{v:.2f}" if abs(v) >= 0.1 or v == 0 else f"{v:.3g}"


def limit_text(row, name):
    """"≥ 0.8" for a must or an aim; nothing if the row has none."""
    value = row.get(name)
    if isinstance(value, str):
        return value if value != "none" else ""
    if value is None or name == "must" and not value and not row["at_most"]:
        return ""
    return f"{'≤' if row['at_most'] else '≥'} {value:.4g}" if name == "must" else f"{value:.4g}"


def ratio_text(row):
    return f"{value_text(row['ratio'])} {row['value_unit']}" if row.get("value_unit") else value_text(row["ratio"])


def spread_text(row):
    spread = row.get("spread")
    return f"{value_text(spread[0])}…{value_text(spread[1])}" if spread else ""


def is_missed(row):
    ratio, must = row["ratio"], row.get("must")
    if ratio is None or must is None or not math.isfinite(ratio):
        return False
    return ratio > must if row["at_most"] else ratio < must

"""What Ferrule aims at, as ratios to others in the same run:  python3 goals.py RESULTS.json [--page
PAGE.md]

`bare` is the loop written by hand over httpx and json, `sockets` the same over raw sockets, `best`
the best framework of a row. A row whose yardstick was not measured is left out. A ratio
below 1 is less time or memory; for rates (runs/s, deltas/s) more is better. The last column says
whether the aim was reached in this run. With `--page` the table goes between the marks of a page as
well.
"""

import argparse
import json
import pathlib
import statistics

YARDSTICKS = ("sockets", "bare", "openai_sdk", "litellm_loop", "ferrule")


def took(key, scale=1e3):
    return lambda sample: sample[key] * scale


def walls(divide=1.0):
    return lambda sample: statistics.median(sample["walls"]) * 1e3 / divide


def gap(sample):
    return statistics.median(one[390] for one in sample["stub"]["gaps_ms"])


def gaps(sample):
    return statistics.median(one for gaps in sample["stub"]["gaps_ms"] for one in gaps)


ROWS = [
    ("import, process ms", "import", took("exit_wall"), "bare", "<=", 1.0),
    ("cold start to the first finished run, ms", "cold", took("said"), "bare", "<=", 1.2),
    ("memory after a run, MiB", "cold", took("rss_end", 1), "bare", "<=", 1.5),
    ("50 rounds, ms per round", "turns50", walls(51), "bare", "<=", 0.7),
    ("400 rounds, ms per round", "history400", walls(401), "bare", "<=", 0.6),
    ("400 rounds, gap at round 390, ms", "history400", gap, "bare", "<=", 0.6),
    ("32 blocking tools of 20 ms, ms", "fan_sync", walls(), "best", "<=", 0.7),
    ("32 async tools of 20 ms, ms", "fan_async", walls(), "bare", "<=", 1.2),
    ("catalog of 1,000, ms per round", "catalog1000", gaps, "bare", "<=", 0.5),
    ("building a catalog of 1,000, ms", "catalog1000", took("build"), "bare", "<=", 1.3),
    (
        "text deltas per second",
        "stream_text10k",
        lambda s: 1e4 / statistics.median(s["walls"]),
        "bare",
        ">=",
        1.5,
    ),
    ("200 KB of arguments, ms", "stream_args200k", walls(), "bare", "<=", 0.6),
    ("100 runs at once, runs/s", "conc100", lambda s: 100 / s["wall"], "bare", ">=", 2.5),
    ("500 runs at once, runs/s", "conc500", lambda s: 500 / s["wall"], "bare", ">=", 10.0),
    ("500 runs at once, peak MiB", "conc500", took("rss_peak", 1), "bare", "<=", 1.5),
    ("50 rounds, ms per round", "turns50", walls(51), "sockets", "<=", 2.0),
    ("500 runs at once, runs/s", "conc500", lambda s: 500 / s["wall"], "sockets", ">=", 0.6),
    ("cold start to the first finished run, ms", "cold", took("said"), "sockets", "<=", 1.7),
]


def figure(samples, label, get):
    """The median of the calm samples, or of all where none was calm; None where there is none."""
    good = [s for s in samples.get(label, ()) if "failed" not in s and not s.get("errors")]
    calm = [s for s in good if not s["disturbed"]] or good
    return statistics.median(map(get, calm)) if calm else None


def rows(samples):
    yield "| row | ferrule | bare | best framework | ratio | aim | |"
    yield "|---|--:|--:|--:|--:|---|---|"
    for name, label, get, beside, sign, aim in ROWS:
        ours, bare = (figure(samples.get(one, {}), label, get) for one in ("ferrule", "bare"))
        found = {n: figure(s, label, get) for n, s in samples.items() if n not in YARDSTICKS}
        rated = [(value, n) for n, value in found.items() if value is not None]
        best = (min if sign == "<=" else max)(rated, default=(None, "none measured"))
        other = best[0] if beside == "best" else figure(samples.get(beside, {}), label, get)
        sign_said = {"<=": "≤", ">=": "≥"}[sign]
        if other is None:
            continue
        if ours is None:
            yield f"| {name} | not measured | | | | {sign_said} {aim} × {beside} | |"
            continue
        ratio = ours / other
        reached = ratio <= aim if sign == "<=" else ratio >= aim
        shown = "" if bare is None else f"{bare:,.3g}" if bare < 1000 else f"{bare:,.0f}"
        mine = f"{ours:,.3g}" if ours < 1000 else f"{ours:,.0f}"
        peer = (
            ""
            if best[0] is None
            else f"{best[0]:,.3g} ({best[1]})"
            if best[0] < 1000
            else f"{best[0]:,.0f} ({best[1]})"
        )
        yield (
            f"| {name} | {mine} | {shown} | {peer} | {ratio:.2f} | {sign_said} {aim} × {beside} "
            f"| {'reached' if reached else 'missed'} |"
        )


def told(results):
    """The table, and what was measured on what."""
    machine, environments = results.get("machine", {}), results.get("environments", {})
    versions = ", ".join(
        f"{name} {one['version']}"
        for name, one in sorted(environments.items())
        if one.get("version")
    )
    lines = [*rows(results["samples"])]
    if machine:
        lines += [
            "",
            (
                f"{machine['cores']} cores ({machine['cpu'].strip()}), Python "
                f"{machine['python']}. {versions}."
            ),
        ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument(
        "--page", type=pathlib.Path, help="a page with `<!-- peers -->` and `<!-- /peers -->`"
    )
    given = parser.parse_args()
    content = told(json.loads(given.results.read_text()))
    print(content)
    if given.page:
        before, _, rest = given.page.read_text().partition("<!-- peers -->")
        _, end, after = rest.partition("<!-- /peers -->")
        given.page.write_text(f"{before}<!-- peers -->\n\n{content}\n\n{end}{after}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Turns a results file into tables:  python3 report.py results/DATE-peers.json > RESULTS.md"""

import json
import pathlib
import statistics
import sys

from run import disturbed

BARE = (
    "sockets",
    "bare",
    "openai_sdk",
    "litellm_loop",
)  # hand-written loops: yardsticks, not frameworks


class Results:
    def __init__(self, path):
        self.r = json.loads(pathlib.Path(path).read_text())
        names = self.r["samples"]
        self.names = [n for n in BARE if n in names] + sorted(n for n in names if n not in BARE)

    def values(self, name, label, get):
        """All the values that get(sample) yields, of the undisturbed samples where there are any;
        or a reason.
        """
        have = self.r["samples"][name].get(label, [])
        good = [s for s in have if "failed" not in s]
        if not good:
            return have[0]["failed"] if have else "n/a"
        calm = [s for s in good if not disturbed(s)]
        vals = []
        for s in calm or good:
            try:
                v = get(s)
            except (KeyError, IndexError, TypeError):
                continue
            vals += v if isinstance(v, list) else [v]
        return vals or "n/a"

    def cell(self, name, label, get, digits=1, spread=True):
        v = self.values(name, label, get)
        if isinstance(v, str):
            return None, "DNF" if v.startswith("over") or v.endswith(
                "failed"
            ) else "n/a" if v == "n/a" else "error"
        m = statistics.median(v)

        def f(x):
            return f"{x:,.{digits if abs(x) < 100 else 0}f}"

        return m, f(m) + (f" ({f(min(v))}–{f(max(v))})" if spread and len(v) > 1 else "")

    def table(self, title, columns, note=""):
        """columns: (heading, label, get, digits, best) with best 'min', 'max' or None."""
        print(f"\n### {title}\n")
        if note:
            print(note + "\n")
        print("| | " + " | ".join(c[0] for c in columns) + " |")
        print("|---" * (len(columns) + 1) + "|")
        grid = {
            n: [self.cell(n, *c[1:4]) if callable(c[2]) else (None, c[2][n]) for c in columns]
            for n in self.names
        }
        for i, c in enumerate(columns):
            ms = {
                n: grid[n][i][0] for n in self.names if n not in BARE and grid[n][i][0] is not None
            }
            if c[4] and ms:
                best = (min if c[4] == "min" else max)(ms, key=ms.get)
                grid[best][i] = (None, f"**{grid[best][i][1]}**")
        for n in self.names:
            print(f"| {n} | " + " | ".join(x[1] for x in grid[n]) + " |")


def gap(turn, width=3):
    """Client time between a response and the next request, around this turn of each run, in ms."""

    def get(s):
        out = []
        for g in s["stub"]["gaps_ms"]:
            if len(g) >= turn:
                out.append(statistics.median(g[max(0, turn - 1 - width) : turn + width]))
        return out

    return get


def allgaps(s):
    return [statistics.median(g) for g in s["stub"]["gaps_ms"]]


def expected(args):
    """How many model calls a task's measured runs take, or None."""
    n = args.get("repeat", 1)
    return {
        "cold": 2,
        "turns": (args.get("turns", 0) + 1) * n,
        "fan": 2 * n,
        "stream": n * (1 if args.get("opts", {}).get("do") == "text" else 2),
        "conc": args.get("n", 0) * (args.get("turns", 0) + 1),
    }.get(args["metric"])


def per_turn(turns, key="walls"):
    return lambda s: [w * 1e3 / (turns + 1) for w in s[key]]


def print_header(r):
    m = r["machine"]
    stub = r["sessions"][-1]["stub"]
    print(f"""# Peer bench: results

Made by `report.py` from `{pathlib.Path(sys.argv[1]).name}`.
Sessions: {"; ".join(f"{s['begun']} to {s.get('ended', 'cut short')}, {s.get('rounds', 0)} full rounds of {s['metrics']}" for s in r["sessions"])}.
{m["cores"]} cores of {m["cpu"]}, {m["memory_mib"]} MiB, Linux {m["kernel"]}, Python {m["python"]}.
Stub: a bare socket's round trip takes {stub["round_trip_us"]["median"]} µs (median, across two CPUs), the stub spends
{stub["stub_cpu_us_per_request"]} µs CPU a request and answers {stub["pipelined_requests_per_s"]:,} requests/s.

A cell is the median over all repeats and rounds, then (min–max). **Bold** is the best framework of a column; the
first four rows are hand-written loops (yardsticks). DNF: over its time limit (90–180 s). See README.md for what each
number means and what is unfair about it.""")


def print_disturbances(r):
    n_all = n_bad = bad = 0
    odd = set()
    for n, labels in r["samples"].items():
        for label, ss in labels.items():
            for s in ss:
                n_all += 1
                n_bad += "failed" not in s and disturbed(s)
                bad += s.get("stub", {}).get("bad", 0)
                if "stub" in s and s["stub"]["requests"] != expected(r["plan"][label]):
                    odd.add(
                        f"{n} {label} ({s['stub']['requests']} for {expected(r['plan'][label])})"
                    )
    print(
        f"\n{n_all} samples, {n_bad} still disturbed by other processes after a repeat (left "
        "out where a calm one "
        f"exists); {bad} requests lacked a tool result; requests to other paths: "
        f"{sum(len(s.get('other_paths') or ()) for s in r['sessions'])}; another number of "
        "model calls than scripted: "
        f"{', '.join(sorted(odd)) or 'none'}."
    )


def print_startup_table(x):
    env = x.r["environments"]
    x.table(
        "Start-up and footprint",
        [
            (
                "version",
                None,
                {n: f"{env[n]['version_of'] or '—'} {env[n]['version'] or ''}" for n in x.names},
                0,
                None,
            ),
            ("packages", None, {n: str(len(env[n]["dists"])) for n in x.names}, 0, None),
            ("installed MiB", None, {n: f"{env[n]['size_mib']:.0f}" for n in x.names}, 0, None),
            ("import, ms", "cold", lambda s: s["t_import"] * 1e3, 0, "min"),
            ("process that only imports, ms", "import", lambda s: s["exit_wall"] * 1e3, 0, "min"),
            ("cold start to first finished run, ms", "cold", lambda s: s["said"] * 1e3, 0, "min"),
            ("RSS after import, MiB", "cold", lambda s: s["rss_import"], 0, "min"),
            ("RSS after run, MiB", "cold", lambda s: s["rss_end"], 0, "min"),
            ("modules", "cold", lambda s: s["modules"], 0, "min"),
        ],
        "Import: inside the process, to the adapter's last import. Process: from its start "
        "to its end, tear-down included "
        "(a bare `python -c pass`: "
        f"{x.cell('sockets', 'python', lambda s: s['exit_wall'] * 1e3)[1]} ms). Cold: from "
        "the start of "
        "the process until the first run is done (2 model calls, 1 tool call), without "
        "tear-down. File caches warm, bytecode "
        "compiled.",
    )


def print_turns_table(x):
    x.table(
        "Per-turn overhead, and how it grows with the history",
        [
            ("50 turns: ms/turn", "turns50", per_turn(50), 2, "min"),
            ("CPU ms/turn", "turns50", per_turn(50, "cpus"), 2, "min"),
            ("10 turns: ms/turn", "history10", per_turn(10), 2, "min"),
            ("100 turns", "history100", per_turn(100), 2, "min"),
            ("400 turns", "history400", per_turn(400), 2, "min"),
            ("gap at turn 10, ms", "history400", gap(10), 2, "min"),
            ("at 100", "history400", gap(100), 2, "min"),
            ("at 390", "history400", gap(390), 2, "min"),
            ("last request, KiB", "history400", lambda s: s["stub"]["wire"][1] / 1024, 0, None),
        ],
        "One trivial tool call a turn. ms/turn: wall of the run / model calls. Gap: from the "
        "response leaving the stub "
        "until the next request is complete there, within the 400-turn run; a gap that grows "
        "with the turn number makes "
        "the run's cost quadratic.",
    )


def print_fan_out_table(x):
    x.table(
        "Fan-out: 32 tool calls of 20 ms in one turn",
        [
            (
                "blocking tool: run, ms",
                "fan_sync",
                lambda s: [w * 1e3 for w in s["walls"]],
                0,
                "min",
            ),
            ("at once", "fan_sync", lambda s: s["peaks"], 0, None),
            ("async tool: run, ms", "fan_async", lambda s: [w * 1e3 for w in s["walls"]], 0, "min"),
            ("at once", "fan_async", lambda s: s["peaks"], 0, None),
        ],
        "One after another would be 640 ms; all at once 20 ms. 'At once' is counted inside "
        "the tool. 6 is asyncio's default "
        "thread pool on 2 cores (cores + 4).",
    )


def print_catalog_table(x):
    x.table(
        "Tool catalog: 1 + N tools registered",
        [
            *[
                (f"N={n}: build, ms", f"catalog{n}", lambda s: s["build"] * 1e3, 1, "min")
                for n in (10, 200, 1000)
            ],
            *[(f"N={n}: gap, ms", f"catalog{n}", allgaps, 2, "min") for n in (10, 200, 1000)],
            *[
                (
                    f"N={n}: KiB/request",
                    f"catalog{n}",
                    lambda s: s["stub"]["wire"][0] / 1024,
                    1,
                    None,
                )
                for n in (10, 200, 1000)
            ],
            (
                "N=1000: first request of a warm run, ms",
                "catalog1000",
                lambda s: s["stub"]["ttfr_ms"],
                1,
                "min",
            ),
        ],
        "Build: making the session's objects (frameworks that make an agent per run pay "
        "again in 'first request'). "
        "Gap: median per turn of a 10-turn run.",
    )


def print_streaming_table(x):
    x.table(
        "Streaming",
        [
            (
                "text, 1k deltas: deltas/s",
                "stream_text1k",
                lambda s: [1000 / w for w in s["walls"]],
                0,
                "max",
            ),
            (
                "10k deltas: deltas/s",
                "stream_text10k",
                lambda s: [10000 / w for w in s["walls"]],
                0,
                "max",
            ),
            ("5 KB arguments, s", "stream_args5k", lambda s: s["walls"], 3, "min"),
            ("50 KB", "stream_args50k", lambda s: s["walls"], 2, "min"),
            ("200 KB", "stream_args200k", lambda s: s["walls"], 2, "min"),
            ("200 KB: peak RSS, MiB", "stream_args200k", lambda s: s["rss_peak"], 0, "min"),
            ("argument deltas shown", "stream_args200k", lambda s: s["seen"][0]["args"], 0, None),
        ],
        "The stub sends at full speed, an HTTP chunk per event. Arguments come in "
        "4-character deltas (200 KB: 56,374 of "
        "them); linear is ×4 from 50 to 200 KB. The last column: how many deltas the "
        "framework's own event stream let the "
        "user see.",
    )


def print_concurrency_tables(x):
    for k in (100, 500):
        x.table(
            f"{k} runs at once, 5 tool turns each, model latency 50 ms",
            [
                ("runs/s", f"conc{k}", lambda s, k=k: k / s["wall"], 1, "max"),
                ("wall, s", f"conc{k}", lambda s: s["wall"], 2, "min"),
                ("CPU ms/run", f"conc{k}", lambda s, k=k: s["cpu"] * 1e3 / k, 1, "min"),
                ("peak RSS, MiB", f"conc{k}", lambda s: s["rss_peak"], 0, "min"),
                ("grown by, MiB", f"conc{k}", lambda s: s["rss_peak"] - s["rss_before"], 0, "min"),
                ("errors", f"conc{k}", lambda s: s["errors"], 0, None),
            ],
            "The latency alone is 6 × 50 ms = 0.3 s. One process on one core.",
        )


def print_failures(x):
    print("\n### What failed\n")
    for n in x.names:
        for label, ss in x.r["samples"][n].items():
            for s in ss:
                if "failed" in s:
                    print(f"- {n}, {label}: {s['failed']}")
                elif s.get("errors"):
                    print(f"- {n}, {label}: {s['errors']} runs failed, e.g. {s['first_errors'][0]}")
                elif s.get("stub", {}).get("bad"):
                    print(
                        f"- {n}, {label}: {s['stub']['bad']} requests lacked a result: "
                        f"{s['stub']['bad_example']}"
                    )


def main():
    x = Results(sys.argv[1])
    print_header(x.r)
    print_disturbances(x.r)
    print_startup_table(x)
    print_turns_table(x)
    print_fan_out_table(x)
    print_catalog_table(x)
    print_streaming_table(x)
    print_concurrency_tables(x)
    notes = pathlib.Path(sys.argv[1]).with_suffix(".notes.md")
    if notes.exists():  # what was found out by hand about this run
        print("\n" + notes.read_text().rstrip())
    print_failures(x)


if __name__ == "__main__":
    main()

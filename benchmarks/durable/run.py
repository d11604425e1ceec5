#!/usr/bin/env python3
"""Durable runs: N runs at once, each 5 tool calls with an effect and an answer, their state kept in PostgreSQL.

    python3 environments.py && ENVS/durable-stub/bin/python run.py --systems bare,ferrule_pg --runs 50,200 --out results.json

Needs PostgreSQL's programs, and psycopg here. `--rtt MS` puts the database that far away. Each measurement has a fresh
database and a warm-up of 10 runs; what is counted is between two looks at the server's counters.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from cluster import Cluster
from environments import SYSTEMS
from environments import python as interpreter
from model import TURNS
from processes import cpu

HERE = pathlib.Path(__file__).resolve().parent


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measure(cluster, base, name, count, port, scratch, profile=None):
    state, effects = f"state_{name}", f"effects_{name}"
    cluster.fresh(state)
    cluster.fresh(effects)
    cluster.sql("CREATE TABLE effects (key text PRIMARY KEY)", db=effects)
    folder = tempfile.mkdtemp(dir=scratch)
    env = {
        **os.environ,
        "BENCH_BASE_URL": base,
        "BENCH_DATABASE": cluster.url(state, port),
        "BENCH_FOLDER": folder,
        "BENCH_EFFECTS": cluster.url(effects, port),
        "OPENAI_API_KEY": "none",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "HOME": folder,
        "PYTHONPATH": os.pathsep.join(
            map(str, (HERE, HERE / "systems", os.environ.get("PYTHONPATH", "")))
        ),
        **({"BENCH_PROFILE": profile} if profile else {}),
    }
    env.update(SYSTEMS[name].get("env", {}))
    python = interpreter(SYSTEMS[name]["envs"])
    with open(f"{folder}/log", "wb") as log:
        worker = subprocess.Popen(
            [python, HERE / "worker.py", SYSTEMS[name].get("module", name)],
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )

    def say(ids):
        worker.stdin.write(json.dumps(ids) + "\n")
        worker.stdin.flush()
        return answer()

    def answer():
        while line := worker.stdout.readline():
            if line.startswith(("{", "ready")):
                return line
        raise SystemExit(f"{name}: {pathlib.Path(folder, 'log').read_text()[-3000:]}")

    answer()
    stamp = f"{time.time_ns():x}"
    say([f"w{stamp}x{i}" for i in range(10)])
    cluster.sql("CHECKPOINT")
    cluster.sql("SELECT pg_stat_statements_reset()")
    before, mine = cluster.counts(state), cpu(worker.pid)
    out = json.loads(say([f"r{stamp}x{i}" for i in range(count)]))
    mine = cpu(worker.pid) - mine
    after = cluster.counts(state)
    commits = cluster.commits(before["wal"], after["wal"]) / count - TURNS  # the effects' own
    done = cluster.sql("SELECT count(*) FROM effects WHERE key LIKE 'r%'", db=effects)[0][0]
    top = cluster.top(state)
    with urllib.request.urlopen(f"{base.removesuffix('/v1')}/stats?r{stamp}") as got:
        seen = json.load(got)
    lost = sum(len(one["bad"]) for one in seen.values())  # requests without the result before them
    worker.stdin.close()
    try:
        worker.wait(60)
    except subprocess.TimeoutExpired:
        worker.kill()
    per = {k: (after[k] - before[k]) / count for k in before}
    return {
        "system": name,
        "n": count,
        "runs_s": count / out["wall"],
        "cpu_ms": mine / count * 1000,
        "pg_cpu_ms": per["server_cpu"] * 1000,
        "statements": per["statements"],
        "commits": commits,
        "wal_kib": per["wal"] / 1024,
        "stored_kib": per["size"] / 1024,
        "late_p50_ms": out["late_p50"] * 1000,
        "late_p99_ms": out["late_p99"] * 1000,
        "wrong": out["wrong"],
        "example": out["example"],
        "effects_ok": done == count * TURNS,
        "requests": sum(one["n"] for one in seen.values()) / count,
        "lost_results": lost,
        "top": [list(map(str, row)) for row in top],
    }


COLUMNS = (
    ("system", "{:24}", "{:24}"),
    ("n", "{:>5}", "{:5}"),
    ("runs_s", "{:>8}", "{:8.1f}"),
    ("cpu_ms", "{:>8}", "{:8.1f}"),
    ("pg_cpu_ms", "{:>10}", "{:10.1f}"),
    ("statements", "{:>11}", "{:11.1f}"),
    ("commits", "{:>8}", "{:8.1f}"),
    ("wal_kib", "{:>8}", "{:8.1f}"),
    ("stored_kib", "{:>11}", "{:11.1f}"),
    ("late_p99_ms", "{:>12}", "{:12.1f}"),
)


def show(one, top):
    """Print the row of a measurement, and what was wrong with it."""
    print(*(value.format(one[name]) for name, _, value in COLUMNS), sep="", flush=True)
    if one["wrong"] or not one["effects_ok"] or one["lost_results"]:
        print("    NOT AS IT SHOULD BE:", one["wrong"], one["example"], one["lost_results"])
    for row in one["top"] if top else ():
        print("   ", *row)


def parse():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument(
        "--systems", default=",".join(name for name in SYSTEMS if name != "ferrule_other")
    )
    ap.add_argument("--runs", default="200")
    ap.add_argument("--rounds", type=int, default=1)
    ap.add_argument("--rtt", type=float, default=0)
    ap.add_argument("--profile", help="a file for cProfile's numbers of the (last) system")
    ap.add_argument("--top", action="store_true", help="show the statements, too")
    ap.add_argument("--out")
    ap.add_argument("--scratch", default=None)
    return ap.parse_args()


def start_relay(cluster, rtt):
    """A port on which the database is `rtt` ms away, and the process that makes it so."""
    port = free_port()
    program = [interpreter("stub"), HERE / "far.py", str(port), str(cluster.port), str(rtt)]
    relay = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    relay.stdout.readline()
    return port, relay


def main():
    a = parse()
    scratch = tempfile.mkdtemp(prefix="durable-", dir=a.scratch)
    os.chmod(scratch, 0o755)
    cluster = Cluster(pathlib.Path(scratch, "pg"))
    cluster.start(free_port())
    stub = subprocess.Popen(
        [interpreter("stub"), HERE / "model.py"], stdout=subprocess.PIPE, text=True
    )
    base = f"http://127.0.0.1:{json.loads(stub.stdout.readline())['port']}/v1"
    port, relay = start_relay(cluster, a.rtt) if a.rtt else (None, None)
    found = []
    print(f"database {a.rtt:g} ms away, load {os.getloadavg()[0]:.1f}")
    print(*(title.format(name) for name, title, _ in COLUMNS), sep="", flush=True)
    order = [(name, int(count)) for name in a.systems.split(",") for count in a.runs.split(",")]
    try:
        for name, count in order * a.rounds:
            try:
                one = measure(cluster, base, name, count, port, scratch, a.profile)
            except SystemExit as error:
                print(error, flush=True)
                continue
            found.append({"rtt": a.rtt, **one})
            show(one, a.top)
        if a.out:
            pathlib.Path(a.out).write_text(json.dumps(found, indent=1))
    finally:
        for process in (stub, relay):
            if process:
                process.terminate()
        cluster.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

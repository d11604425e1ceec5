#!/usr/bin/env python3
"""Runs the peer bench: every adapter against the same stub, in one go, round after round.

    python3 run.py [--adapters a,b] [--metrics m,n] [--rounds 3] [--out results/DATE-peers.json]
    python3 run.py --floor          what the stub itself costs
    python3 run.py --quick          one light round (a smoke test of all adapters)

A round measures each metric for each adapter in fresh processes; the rounds are outermost, so that
a drift of the machine meets all adapters alike. The stub is pinned to CPU 0, the measured process
to CPU 1, and both run at raised priority where that is allowed. With each sample goes how quiet the
machine was: the CPU that others took ("foreign", in cores), the share of the time the measured main
thread had to wait for a CPU ("delay"), and the machine's speed just before on a fixed loop (1 = the
best seen in this run). A sample with much of these is "disturbed" and taken again. Results are
written as they come; report.py makes the tables.
"""

import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import platform
import queue
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from envs import HERE, adapters, python

TICK = os.sysconf("SC_CLK_TCK")
QUIET = 0.15  # cores: what others use while a machine counts as idle
OFFLINE = {  # nothing can leave the machine; this is what an offline user would set
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "127.0.0.1",
    "OPENAI_API_KEY": "none",
    "PYTHONPATH": str(HERE / "given"),
    "PYTHONWARNINGS": "ignore",
}
KEEP = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE")


# ---------------------------------------------------------------- the machine
def prepare(cpu):
    """Take this CPU, and priority over other work where allowed (a child inherits both)."""
    if os.cpu_count() > 1:
        os.sched_setaffinity(0, {cpu})
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    except PermissionError:
        pass


fastest = 1e9


def speed():
    """How fast this CPU is now, relative to the fastest seen in this run."""
    global fastest
    took = []
    for _ in range(3):
        t = time.perf_counter()
        sum(i * i for i in range(60_000))
        took.append(time.perf_counter() - t)
    fastest = min(fastest, *took)
    return fastest / sorted(took)[1]


def disturbed(s):
    """Others took the CPU from the main thread (its own threads do too, but then others use
    little), or it was slow.
    """
    return s["foreign"] > QUIET and s["delay"] > 0.05 or s["foreign"] > 1.6 or s["speed"] < 0.75


def delay_of(pid):
    """Seconds that the process's main thread has been ready to run without running."""
    try:
        with open(f"/proc/{pid}/schedstat") as f:
            return int(f.read().split()[1]) / 1e9
    except OSError:
        return 0.0


def busy():
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return (sum(v) - v[3] - v[4]) / TICK  # all but idle and iowait


def cpu_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        v = f.read().rpartition(")")[2].split()
    return (int(v[11]) + int(v[12])) / TICK


def wait_quiet(limit):
    """Waits until the others use < QUIET cores for a while, at most limit s."""
    end, calm = time.time() + limit, 0
    while calm < 2 and time.time() < end:
        b, t = busy(), time.time()
        time.sleep(0.25)
        calm = calm + 1 if (busy() - b) / (time.time() - t) < QUIET else 0


class Stub:
    def __enter__(self):
        self.p = subprocess.Popen(
            [python("stub"), HERE / "stub_server.py"],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: prepare(0),
        )
        self.port = json.loads(self.p.stdout.readline())["port"]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *exc):
        self.p.terminate()
        self.p.wait()

    def stats(self, prefix):
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/stats?{prefix}", timeout=30
        ) as r:
            return json.load(r)


# ---------------------------------------------------------------- samples
def spawn(cmd, env, limits, pids):
    """Runs cmd and yields ("line", text) per line of stdout, then ("end", facts).

    limits: seconds allowed for each line in turn; pids: given the process id.
    """
    t, lines, err = time.perf_counter(), queue.Queue(), []
    p = subprocess.Popen(
        cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True
    )
    pids.append(p.pid)

    def read():
        for line in p.stdout:
            lines.put(line.decode())
        lines.put(None)

    threads = [
        threading.Thread(target=read),
        threading.Thread(target=lambda: err.append(p.stderr.read())),
    ]
    for x in threads:
        x.start()
    timed_out = False
    for limit in [*limits, 20]:
        try:
            while (line := lines.get(timeout=limit)) is not None and not line.startswith("@@"):
                pass
        except queue.Empty:
            timed_out = True
            os.killpg(p.pid, signal.SIGKILL)
            break
        if line is None:
            break
        yield "line", line
    _, st, ru = os.wait4(p.pid, 0)
    wall = time.perf_counter() - t
    p.returncode = os.waitstatus_to_exitcode(st)
    for x in threads:
        x.join()
    why = (
        "timeout"
        if timed_out
        else (err[0].decode(errors="replace").strip().splitlines() or ["?"])[-1][:300]
    )
    yield (
        "end",
        {
            "rc": p.returncode,
            "why": why,
            "exit_wall": wall,
            "proc_cpu": ru.ru_utime + ru.ru_stime,
            "maxrss": ru.ru_maxrss / 1024,
        },
    )


def measure(stub, name, ad, tasks):
    """One process for these tasks (label -> (timeout, args)); yields (label, sample) as each is
    done.

    A task that fails ends the process; those after it are not yielded, and the caller starts anew
    with them.
    """
    env = {**{k: os.environ[k] for k in KEEP if k in os.environ}, **OFFLINE, **ad.get("ENV", {})}
    py = ad.get("python") or str(python(name))
    first = next(iter(tasks.values()))[1]["metric"]
    if first in ("import", "python"):
        cmd = [py, "-P", str(ad["path"])] if first == "import" else [py, "-P", "-c", "pass"]
    else:
        stamp = time.time_ns()
        full = [
            {**args, "label": k, "url": stub.url, "prefix": f"{stamp}-{i}-"}
            for i, (k, (_, args)) in enumerate(tasks.items())
        ]
        cmd = [py, "-P", str(HERE / "worker.py"), str(ad["path"]), json.dumps(full)]
    pids, left = [], list(tasks)

    def clock():
        pid = pids[0] if pids and not ended else None
        own = cpu_of(stub.p.pid) + (cpu_of(pid) if pid else 0)
        return busy() - own, time.perf_counter(), delay_of(pid) if pid else 0.0

    def others(since, until, extra=0.0):
        wall = until[1] - since[1]
        f, d = max(0.0, until[0] - since[0] - extra) / wall, max(0.0, until[2] - since[2]) / wall
        r = {"foreign": round(f, 3), "delay": round(d, 3), "speed": round(fast, 3)}
        return {**r, "disturbed": disturbed(r)}

    fast = speed()
    ended = False
    begun = last = clock()
    for kind, x in spawn(cmd, env, [t for t, _ in tasks.values()], pids):
        if kind == "line":
            here, r = clock(), json.loads(x[2:])
            r.update(others(last, here), said=here[1] - begun[1])
            last, label = here, r.pop("label")
            left.remove(label)
            args = full[list(tasks).index(label)]
            r["stub"] = digest(
                stub.stats(args["prefix"]), args["prefix"], args, r.pop("starts", None)
            )
            yield label, r
        else:
            ended = True
            if first in ("import", "python"):
                x.update(others(begun, clock(), x["proc_cpu"]))
                yield left[0], x if x["rc"] == 0 else {**x, "failed": x["why"]}
            elif left:
                why = f"over {tasks[left[0]][0]} s" if x["why"] == "timeout" else x["why"]
                yield (
                    left[0],
                    {
                        "failed": why,
                        "foreign": 0,
                        "delay": 0,
                        "speed": fast,
                        "disturbed": False,
                        "exit_wall": x["exit_wall"],
                    },
                )


def digest(runs, prefix, args, starts):
    """What the stub saw of the measured runs, short enough to keep."""
    real = {k[len(prefix) :]: v for k, v in runs.items() if not k.endswith("warm")}
    d = {
        "requests": sum(v["n"] for v in real.values()),
        "bad": sum(len(v["bad"]) for v in real.values()),
        "streamed": sum(v["streamed"] for v in real.values()),
        "bad_example": next((v["bad"][0] for v in real.values() if v["bad"]), None),
    }
    if args["metric"] != "turns":
        return d
    d["gaps_ms"], d["wire"], d["ttfr_ms"] = [], [], []
    for i, (_, v) in enumerate(sorted(real.items())):
        d["gaps_ms"].append([round((b - a) * 1e3, 3) for a, b in zip(v["t_out"], v["t_in"][1:])])
        d["wire"] = [v["wire"][0], v["wire"][-1]]
        if starts and i < len(starts):
            d["ttfr_ms"].append(round((v["t_in"][0] - starts[i]) * 1e3, 3))
    return d


# ---------------------------------------------------------------- the plan
def plan(quick):
    """[(processes a round, {label: (timeout, worker arguments)})]; the tasks of one entry share a
    process.
    """

    def text(n):
        return {"metric": "stream", "opts": {"do": "text", "n": n}, "warm": {"n": 100}, "repeat": 2}

    def args(size):
        return {
            "metric": "stream",
            "opts": {"do": "write", "size": size, "chunk": 4},
            "warm": {"size": 300},
            "repeat": 1,
        }

    def turns(n, repeat, catalog=0):
        return {"metric": "turns", "turns": n, "repeat": repeat, "catalog": catalog}

    p = [
        (2, {"python": (30, {"metric": "python"})}),
        (2, {"import": (60, {"metric": "import"})}),
        (2, {"cold": (90, {"metric": "cold"})}),
        (
            1,
            {
                "turns50": (120, turns(50, 3)),
                "history10": (60, turns(10, 3)),
                "history100": (120, turns(100, 1)),
                "history400": (240, turns(400, 1)),
                "fan_sync": (60, {"metric": "fan", "k": 32, "tool": "nap", "repeat": 5}),
                "fan_async": (60, {"metric": "fan", "k": 32, "tool": "anap", "repeat": 5}),
            },
        ),
        (
            1,
            {
                "catalog10": (120, turns(10, 3, 10)),
                "catalog200": (120, turns(10, 3, 200)),
                "catalog1000": (180, turns(10, 2, 1000)),
            },
        ),
        (
            1,
            {
                "stream_text1k": (60, text(1000)),
                "stream_text10k": (90, text(10_000)),
                "stream_args5k": (60, args(5_000)),
                "stream_args50k": (90, args(50_000)),
                "stream_args200k": (120, args(200_000)),
            },
        ),
        (1, {"conc100": (150, {"metric": "conc", "n": 100, "turns": 5, "lat": 50})}),
        (1, {"conc500": (180, {"metric": "conc", "n": 500, "turns": 5, "lat": 50})}),
    ]
    if quick:
        long = (
            "catalog1000",
            "stream_args50k",
            "stream_args200k",
            "conc500",
            "history100",
            "history400",
        )
        p = [
            (1, {k: (t, {**a, "repeat": 1}) for k, (t, a) in g.items() if k not in long})
            for _, g in p
        ]
    return p


def machine():
    model = next(
        (x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "?"
    )
    mem = int(open("/proc/meminfo").readline().split()[1]) // 1024
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_mib": mem,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def environment(name, ad):
    """Versions, number of distributions and size of an adapter's environment."""
    py = ad.get("python") or str(python(name))
    code = (
        "import importlib.metadata as m, json, sysconfig, pathlib; "
        "print(json.dumps([{d.metadata['Name']: d.version for d in m.distributions()}, "
        "sum(f.stat().st_size for f in "
        "pathlib.Path(sysconfig.get_path('purelib')).rglob('*') if f.is_file())]))"
    )
    dists, size = json.loads(
        subprocess.run([py, "-P", "-c", code], capture_output=True, check=True).stdout
    )
    return {
        "version_of": ad.get("VERSION_OF"),
        "version": dists.get(ad.get("VERSION_OF")),
        "dists": dists,
        "size_mib": round(size / 2**20, 1),
        "note": ad.get("NOTE", ""),
    }


def floor(stub):
    """What the stub costs: raw sockets against it, and how many requests it can answer."""
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "[[run=floor;do=echo]]"}]}
    ).encode()
    req = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        + body
    )
    s = socket.create_connection(("127.0.0.1", stub.port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took = []
    for _ in range(3000):
        t = time.perf_counter()
        s.sendall(req)
        s.recv(65536)
        took.append(time.perf_counter() - t)
    took.sort()
    c, t, n = cpu_of(stub.p.pid), time.perf_counter(), 20_000
    for _ in range(n // 100):  # pipelined: the stub is the bottleneck
        s.sendall(req * 100)
        got = 0
        while got < 100:
            got += s.recv(1 << 20).count(b"HTTP/1.1 200")
    wall = time.perf_counter() - t
    stub.stats("floor")
    return {
        "round_trip_us": {
            "median": round(took[1500] * 1e6, 1),
            "min": round(took[0] * 1e6, 1),
            "p99": round(took[2970] * 1e6, 1),
        },
        "pipelined_requests_per_s": round(n / wall),
        "stub_cpu_us_per_request": round((cpu_of(stub.p.pid) - c) / n * 1e6, 1),
    }


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--adapters")
    ap.add_argument("--metrics", help="labels of plan(), by comma; they may hold *")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="ADAPTER=PYTHON",
        help="run this adapter with that interpreter (a checkout's own environment)",
    )
    ap.add_argument("--out", type=pathlib.Path)
    ap.add_argument(
        "--add",
        action="store_true",
        help="add rounds to the results file instead of starting it anew",
    )
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--floor", action="store_true")
    ap.add_argument(
        "--tries", type=int, default=2, help="how often at most to take a disturbed sample"
    )
    ap.add_argument(
        "--wait", type=float, default=2, help="most seconds to wait for a quiet machine, per sample"
    )
    a = ap.parse_args()
    ads = adapters()
    for x in a.python:
        n, _, p = x.partition("=")
        ads[n]["python"] = p
    names = (
        a.adapters.split(",")
        if a.adapters
        else [n for n in ads if "python" in ads[n] or python(n).exists()]
    )
    groups = [
        (
            c,
            {
                k: v
                for k, v in g.items()
                if not a.metrics or any(fnmatch.fnmatch(k, m) for m in a.metrics.split(","))
            },
        )
        for c, g in plan(a.quick)
    ]
    prepare(1)
    with Stub() as stub:
        wait_quiet(a.wait)
        fl = floor(stub)
        print("stub:", json.dumps(fl), flush=True)
        if a.floor:
            return
        out = (
            a.out
            or HERE / "results" / f"{datetime.date.today()}-{'quick' if a.quick else 'peers'}.json"
        )
        out.parent.mkdir(exist_ok=True)
        res = {
            "sessions": [],
            "machine": machine(),
            "environments": {n: environment(n, ads[n]) for n in names},
            "plan": {k: v[1] for _, g in plan(a.quick) for k, v in g.items()},
            "samples": {n: {k: [] for _, g in plan(a.quick) for k in g} for n in names},
        }
        if a.add:
            old, new = json.loads(out.read_text()), res
            for n in names:
                was = old["environments"].setdefault(n, new["environments"][n])["version"]
                assert was == new["environments"][n]["version"], f"{n}: the file has version {was}"
                old["samples"].setdefault(n, new["samples"][n])
            res = old
        res["sessions"].append(
            {"begun": now(), "adapters": names, "metrics": a.metrics or "all", "stub": fl}
        )
        for rnd in range(1 if a.quick else a.rounds):
            for count, group in groups:
                for n in names * count:
                    one(stub, n, ads[n], group, res["samples"][n], a, rnd)
                    out.write_text(json.dumps(res))
            res["sessions"][-1].update(
                rounds=rnd + 1,
                ended=now(),
                other_paths=stub.stats("_other").get("_other", {}).get("bad"),
            )
            out.write_text(json.dumps(res))
        print(out)


def now():
    return datetime.datetime.now().isoformat(timespec="seconds")


def one(stub, name, ad, group, have, a, rnd):
    """A sample of each task of the group; a disturbed one is taken again, a failed one never."""
    todo = {
        k: v
        for k, v in group.items()
        if not any("failed" in s for s in have[k])
        and (v[1].get("tool") != "anap" or ad.get("ASYNC_TOOLS", True))
    }
    best, tries = {}, dict.fromkeys(todo, 0)
    while todo:
        wait_quiet(a.wait)
        for label, s in measure(stub, name, ad, todo):
            tries[label] += 1
            if label not in best or (s["disturbed"], s["delay"]) < (
                best[label]["disturbed"],
                best[label]["delay"],
            ):
                best[label] = s
            bad = s.get("stub", {}).get("bad_example")
            if "failed" in s:  # then no larger one of its kind either
                stem = label.rstrip("0123456789k")
                best.update(
                    {
                        k: {**s, "failed": f"{label} failed"}
                        for k in list(todo)[list(todo).index(label) + 1 :]
                        if k.startswith(stem)
                    }
                )
            print(
                f"{rnd} {label:16} {name:14} {s.get('said') or s.get('exit_wall'):7.2f} s  "
                f"foreign {s['foreign']:.2f} delay {s['delay']:.2f} speed {s['speed']:.2f}"
                + " DISTURBED" * s["disturbed"]
                + (f"  FAILED {s['failed']}" if "failed" in s else "")
                + (f"  BAD {bad}" if bad else ""),
                flush=True,
            )
        todo = {
            k: v
            for k, v in todo.items()
            if "failed" not in best.get(k, ())
            and tries[k] < a.tries
            and (k not in best or best[k]["disturbed"])
        }
    for label, s in best.items():
        have[label].append(s)


if __name__ == "__main__":
    main()

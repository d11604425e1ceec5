"""Measurements of one adapter in a fresh process:  python -P worker.py ADAPTER.py '[{"label": ...,
"metric": ...}]'

Prints a line `@@{json}` after each. Imports little, so that it adds little to the cold start it
measures.
"""

import os
import sys
import time

T0 = time.perf_counter()
REPORT = os.dup(1)


def status(key):
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(key):
                return int(line.split()[1]) / 1024  # MiB
    return 0.0


def load(path):
    import importlib.util

    spec = importlib.util.spec_from_file_location("bench_adapter", path)
    mod = importlib.util.module_from_spec(spec)
    sys.modules["bench_adapter"] = mod
    spec.loader.exec_module(mod)
    return mod


def prompt(mod, run, **opts):
    opts = {**opts, **getattr(mod, "PROMPT_OPTS", {})}
    return "Use the tools. [[run=%s;%s]]" % (run, ";".join(f"{k}={v}" for k, v in opts.items()))


def say(label, res):
    import json

    res.update(
        label=label,
        rss_end=status("VmRSS"),
        rss_peak=status("VmHWM"),
        t_done=time.perf_counter() - T0,
    )
    os.write(REPORT, b"@@" + json.dumps(res).encode() + b"\n")


def main():
    import json

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # smolagents draws what it streams
    path, tasks = sys.argv[1], json.loads(sys.argv[2])
    mod = load(path)
    loaded = {"t_import": time.perf_counter() - T0, "rss_import": status("VmRSS")}
    runner = None
    for a in tasks:
        conc = a["metric"] == "conc"
        kind = "stream" if a["metric"] == "stream" else "run"
        # blocking if the adapter is; but many runs at once go by arun where there is one
        if hasattr(mod.Session, kind) and not (conc and hasattr(mod.Session, "arun")):
            res = conc_threads(mod, a) if conc else drive(METRICS[a["metric"]](mod, a))
        else:
            import asyncio

            runner = runner or asyncio.Runner()
            res = runner.run(conc_async(mod, a) if conc else adrive(METRICS[a["metric"]](mod, a)))
        say(a["label"], {**res, **loaded})


def drive(gen):
    try:
        s, kind, p = next(gen)
        while True:
            s, kind, p = gen.send(getattr(s, kind)(p))
    except StopIteration as e:
        return e.value


async def adrive(gen):
    try:
        s, kind, p = next(gen)
        while True:
            s, kind, p = gen.send(await getattr(s, "a" + kind)(p))
    except StopIteration as e:
        return e.value


# A metric is a generator: it yields (session, "run" or "stream", prompt), is sent what that
# returned, and so is written once for sync and async adapters.


def cold(mod, a):
    import bench_tools as tools

    s = mod.Session(a["url"], [tools.add])
    yield s, "run", prompt(mod, a["prefix"] + "0", do="add", turns=1)
    return {"modules": len(sys.modules)}


def turns(mod, a):
    """`repeat` runs of `turns` tool turns each, after a warm-up, with `catalog` more tools."""
    import bench_tools as tools

    toolset = [tools.add] + (tools.catalog(a["catalog"]) if a.get("catalog") else [])
    t = time.perf_counter()
    s = mod.Session(a["url"], toolset)
    build = time.perf_counter() - t
    walls, cpus, starts = [], [], []
    yield s, "run", prompt(mod, a["prefix"] + "warm", do="add", turns=2)
    for i in range(a["repeat"]):
        t, c = time.perf_counter(), time.process_time()
        yield s, "run", prompt(mod, f"{a['prefix']}r{i}", do="add", turns=a["turns"])
        walls.append(time.perf_counter() - t)
        cpus.append(time.process_time() - c)
        starts.append(t)
    return {"build": build, "walls": walls, "cpus": cpus, "starts": starts}


def fan(mod, a):
    import bench_tools as tools

    s = mod.Session(a["url"], [getattr(tools, a["tool"])])
    yield s, "run", prompt(mod, a["prefix"] + "warm", do="fan", k=2, tool=a["tool"])
    walls, peaks = [], []
    for i in range(a["repeat"]):
        tools.peak = 0
        t = time.perf_counter()
        yield s, "run", prompt(mod, f"{a['prefix']}r{i}", do="fan", k=a["k"], tool=a["tool"])
        walls.append(time.perf_counter() - t)
        peaks.append(tools.peak)
    return {"walls": walls, "peaks": peaks}


def stream(mod, a):
    import bench_tools as tools

    s = mod.Session(a["url"], [tools.write_file])
    yield s, "stream", prompt(mod, a["prefix"] + "warm", **{**a["opts"], **a["warm"]})
    walls, cpus, seen = [], [], []
    for i in range(a["repeat"]):
        t, c = time.perf_counter(), time.process_time()
        seen.append((yield s, "stream", prompt(mod, f"{a['prefix']}r{i}", **a["opts"])))
        walls.append(time.perf_counter() - t)
        cpus.append(time.process_time() - c)
    return {"walls": walls, "cpus": cpus, "seen": seen}


async def conc_async(mod, a):
    import asyncio

    import bench_tools as tools

    s = mod.Session(a["url"], [tools.add])
    await s.arun(prompt(mod, a["prefix"] + "warm", do="add", turns=1))
    base, t, c = status("VmRSS"), time.perf_counter(), time.process_time()
    got = await asyncio.gather(
        *(
            s.arun(prompt(mod, f"{a['prefix']}r{i}", do="add", turns=a["turns"], lat=a["lat"]))
            for i in range(a["n"])
        ),
        return_exceptions=True,
    )
    return conc_result(got, time.perf_counter() - t, time.process_time() - c, base)


def conc_threads(mod, a):
    from concurrent.futures import ThreadPoolExecutor

    import bench_tools as tools

    s = mod.Session(a["url"], [tools.add])
    s.run(prompt(mod, a["prefix"] + "warm", do="add", turns=1))

    def one(i):
        try:
            return s.run(
                prompt(mod, f"{a['prefix']}r{i}", do="add", turns=a["turns"], lat=a["lat"])
            )
        except Exception as e:
            return e

    base = status("VmRSS")
    with ThreadPoolExecutor(a["n"]) as pool:
        t, c = time.perf_counter(), time.process_time()
        got = list(pool.map(one, range(a["n"])))
        wall, cpu = time.perf_counter() - t, time.process_time() - c
    return conc_result(got, wall, cpu, base)


def conc_result(got, wall, cpu, base):
    bad = [f"{type(g).__name__}: {g}"[:200] for g in got if g != "done"]
    return {
        "wall": wall,
        "cpu": cpu,
        "errors": len(bad),
        "first_errors": bad[:3],
        "rss_before": base,
    }


METRICS = {"cold": cold, "turns": turns, "fan": fan, "stream": stream, "conc": None}

if __name__ == "__main__":
    main()

"""The stub model with one scenario more, and the tool that all systems give it.

    [[run=ID;do=pay;turns=5;lat=20]]      one pay(run=ID, number=k) call per turn, then the text "done"

Run as a program it serves (`../peers/stub_server.py`); the stub checks that every request carries the result before it.
"""

import argparse
import pathlib
import sys

TURNS = 5
LATENCY = 20


def prompt(run):
    return f"[[run={run};do=pay;turns={TURNS};lat={LATENCY}]] Pay all bills."


def answered(run, number):
    """What the tool returns, and what the stub looks for in the next request."""
    return f"paid-{run}-{number}-once"


def serve(port):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
    import stub_server
    import uvloop

    plain, lost = stub_server.reply, stub_server.missing

    def reply(o, turn, rid, size):
        if o.get("do") == "pay" and turn < int(o["turns"]):
            return None, [
                stub_server.call(
                    f"call_{rid}_{turn}", "pay", '{"run":"%s","number":%d}' % (rid, turn)
                )
            ]
        return plain(o, turn, rid, size)

    def missing(o, turn, body):
        if o.get("do") == "pay" and turn:
            return (
                "" if answered(o["run"], turn - 1).encode() in body else f"turn {turn}: no result"
            )
        return lost(o, turn, body)

    stub_server.reply, stub_server.missing = reply, missing
    uvloop.run(stub_server.main(port))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--port", type=int, default=0)
    serve(ap.parse_args().port)

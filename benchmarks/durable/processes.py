"""CPU time of processes, from /proc."""

import os
import pathlib


def cpu(pid):
    """CPU seconds of a process and all below it, also of those it has waited for."""
    total = 0
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += cpu(child)
    except OSError:
        pass
    return total

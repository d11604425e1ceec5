"""The recipe of a Kubernetes Job: a worker that ends once no job waits, and the object that starts
it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster import Cluster

pytest.importorskip("procrastinate", reason="needs the extra `scale`")

from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.jobs import Jobs

RECIPE = Path(__file__).parents[2] / "examples/engines"
SECONDS = 60
AGENT = """
import os
from ferrule import Agent, Scripted, Storage
from ferrule.testing import says

def make(job, journal):
    storage = Storage(journal=journal, tenant=job.tenant, user=job.user)
    return Agent(Scripted([says(f"did {job.text}")]), storage=storage)
"""


@pytest.fixture
def url(cluster: Cluster) -> str:
    name = f"pod_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    return f"postgresql:///{name}?host={cluster.folder}&user=ferrule"


def test_the_program_of_the_job_works_what_waits_and_ends(url: str, tmp_path: Path) -> None:
    [described] = yaml.safe_load_all((RECIPE / "kubernetes_job.yaml").read_text())
    [container] = described["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    python, program, agent = container["command"]
    assert python == "python3"
    shutil.copy(RECIPE / program, tmp_path)
    module, _, function = agent.partition(":")
    assert function == "make"
    package = tmp_path / module.partition(".")[0]
    package.mkdir()
    (package / f"{module.partition('.')[2]}.py").write_text(AGENT)
    secrets = {one["name"] for one in container["env"]}
    assert secrets == {"FERRULE_DATABASE", "PGPASSWORD"}
    with Jobs(url) as jobs:
        waiting = [jobs.submit(Job(f"job {n}", tenant="acme")) for n in range(3)]
        ended = subprocess.run(
            [sys.executable, program, agent],
            cwd=tmp_path,
            env={**os.environ, "FERRULE_DATABASE": url, "IDLE_SECONDS": "1"},
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0
        states = {one.job.text: one.state for one in jobs.recent()}
    assert states == {one.text: "done" for one in waiting}


def test_the_object_of_the_job_is_one_that_kubernetes_takes() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="PyPI: kubernetes-validate")
    [described] = yaml.safe_load_all((RECIPE / "kubernetes_job.yaml").read_text())
    validate.validate(described, "1.31", strict=True)

"""The Helm chart: what it makes is valid, and its roles are enough for a job and no more."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import Cluster
from helm_templates import Chart

pytest.importorskip("psycopg", reason="needs the extra `scale`")

import psycopg

from ferrule.cli.distributed import worker
from ferrule.engine.distributed.engines import EngineOptions, ask_engine, open_engine
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.jobs import Jobs
from ferrule.engine.distributed.outcomes import OutcomeTable

CHART = Path(__file__).parents[2] / "release" / "chart"
FULL: dict[str, Any] = {
    "agent": "shop.agents:make",
    "perTenant": 4,
    "environment": {"FERRULE_MODEL": "anthropic:claude-sonnet-4-5"},
    "environmentSecrets": ["providers"],
    "autoscaling": {"enabled": True, "max": 7},
}
ALWAYS = {"ServiceAccount", "Deployment", "Job", "PodDisruptionBudget"}


def find(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ({}, ALWAYS | {"NetworkPolicy"}),
        (FULL, ALWAYS | {"NetworkPolicy", "ScaledObject", "TriggerAuthentication"}),
        ({"networkPolicy": {"enabled": False}}, ALWAYS),
    ],
    ids=["as it is", "everything", "without network policy"],
)
def test_the_chart_makes_objects_that_belong_together(
    values: dict[str, Any], kinds: set[str]
) -> None:
    objects = Chart(CHART, **values).render()
    assert {one["kind"] for one in objects} == kinds
    assert len({(one["kind"], one["metadata"]["name"]) for one in objects}) == len(objects)
    deployment = find(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    migration = find(objects, "Job")["spec"]["template"]["metadata"]["labels"]
    selectors = [deployment["selector"], find(objects, "PodDisruptionBudget")["spec"]["selector"]]
    if "NetworkPolicy" in kinds:
        selectors.append(find(objects, "NetworkPolicy")["spec"]["podSelector"])
    for selector in selectors:
        assert selector["matchLabels"].items() <= labels.items()
        assert not selector["matchLabels"].items() <= migration.items(), "it is no worker"
    assert ("replicas" in deployment) is ("ScaledObject" not in kinds)
    if "ScaledObject" in kinds:
        scaled = find(objects, "ScaledObject")["spec"]
        assert scaled["scaleTargetRef"]["name"] == find(objects, "Deployment")["metadata"]["name"]
        assert scaled["maxReplicaCount"] == 7


@pytest.mark.parametrize("values", [{}, FULL], ids=["as it is", "everything"])
def test_what_the_chart_makes_fits_the_schemas_of_kubernetes(values: dict[str, Any]) -> None:
    checks = pytest.importorskip("kubernetes_validate", reason="PyPI: kubernetes-validate")
    for one in Chart(CHART, **values).render():
        if not one["apiVersion"].startswith("keda.sh/"):
            checks.validate(one, "1.37", strict=True)


def test_workers_start_as_they_can_be_started_and_hold_no_right_that_they_do_not_need() -> None:
    objects = Chart(CHART, **FULL).render()
    pod = find(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][0] == "worker"
    url = ["--database", "postgresql://ferrule@db/ferrule"]
    given = worker.make_context("worker", [*url, *container["args"][1:]]).params
    assert (given["engine"], given["concurrency"]) == ("procrastinate", 16)
    assert (given["per_tenant"], given["factory"]) == (4, "shop.agents:make")
    variables = {one["name"]: one for one in container["env"]}
    assert variables["FERRULE_MODEL"]["value"] == "anthropic:claude-sonnet-4-5"
    secret = variables["FERRULE_DATABASE"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": "ferrule-worker", "key": "url"}
    assert not pod["automountServiceAccountToken"]
    for kind in ("Deployment", "Job"):
        (one,) = find(objects, kind)["spec"]["template"]["spec"]["containers"]
        rights = one["securityContext"]
        assert rights["runAsNonRoot"] and rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"] and rights["capabilities"] == {
            "drop": ["ALL"]
        }
    policy = find(objects, "NetworkPolicy")["spec"]
    assert policy["ingress"] == []


def test_the_age_that_workers_are_scaled_by_is_that_of_the_metrics(cluster: Cluster) -> None:
    url = make_database(cluster)
    migrate(url)
    query = find(Chart(CHART, **FULL).render(), "ScaledObject")["spec"]["triggers"][0]["metadata"]
    table = OutcomeTable(url)
    with psycopg.connect(url, autocommit=True) as db:
        assert db.execute(query["query"].encode()).fetchall()[0][0] == 0
        table.submit([Job("x", run="x").with_name().as_dict()])
        db.execute("UPDATE ferrule.outcomes SET due = due - interval '1 hour'")
        age = float(db.execute(query["query"].encode()).fetchall()[0][0])
    assert 3600 <= age <= table.measure().oldest
    table.close()


def make_database(cluster: Cluster) -> str:
    name = f"chart_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    return f"postgresql:///{name}?host={cluster.folder}&user=ferrule"


def migrate(url: str, role: str = "ferrule") -> None:
    """Run the script of the migration job as its pod does."""
    (container,) = find(Chart(CHART).render(), "Job")["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one.get("value", "") for one in container["env"]}
    variables |= {"FERRULE_DATABASE": url, "WORKER_ROLE": role}
    command = [sys.executable, *container["command"][1:]]
    subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=60)


def test_the_role_of_workers_can_take_jobs_after_the_migration_and_change_no_table(
    cluster: Cluster,
) -> None:
    url, role = make_database(cluster), cluster.free_name()
    cluster.sql(f"CREATE ROLE {role} LOGIN")
    migrate(url, role)
    migrate(url, role)
    theirs = url.replace("user=ferrule", f"user={role}")
    jobs = Jobs(theirs)
    job = jobs.submit(Job("x", tenant="acme"))
    table = OutcomeTable(theirs)
    assert table.begin(job.run, "me", per_tenant=None).answer == "begin"
    engine = open_engine("procrastinate", EngineOptions(theirs))
    ask_engine(engine.prepare())
    for one in (jobs, table, engine):
        one.close()
    with psycopg.connect(theirs, autocommit=True) as db:
        taken = "SELECT id FROM procrastinate_fetch_job_v2(NULL, NULL)"
        for statement in ("DELETE FROM ferrule.records", "DROP TABLE ferrule.outcomes"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement.encode())
        assert db.execute(taken.encode()).fetchall()[0][0] is not None


EXAMPLES = Path(__file__).parents[2] / "examples" / "engines"


def test_a_worker_of_a_kubernetes_job_works_what_waits_and_ends(cluster: Cluster) -> None:
    url = make_database(cluster)
    jobs = Jobs(url)
    named = jobs.submit_all([Job(f"say {number}") for number in range(3)])
    described = yaml.safe_load((EXAMPLES / "kubernetes_job.yaml").read_text(encoding="utf-8"))
    pod = described["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    program = pod["containers"][0]["command"][1]
    variables = {
        "FERRULE_DATABASE": url,
        "SCALE_DATABASE": url,
        "IDLE_SECONDS": "0.5",
        "PYTHONPATH": str(Path(__file__).parent),
    }
    assert {one["name"] for one in pod["containers"][0]["env"]} - {"PGPASSWORD"} <= variables.keys()
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / program), "scale_worker:make"],
        env={**os.environ, **variables},
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0
    assert [jobs.outcome(job.run)["stop"] for job in named] == ["done"] * 3
    jobs.close()


@pytest.mark.parametrize("name", ["celery_engine.py", "dbos_engine.py", "ray_engine.py"])
def test_an_example_of_an_engine_has_less_than_sixty_lines_of_code(name: str) -> None:
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    words = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    text = {line for word in words for line in range(word.lineno, (word.end_lineno or 0) + 1)}
    code = [
        line
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in text
    ]
    assert len(code) < 60

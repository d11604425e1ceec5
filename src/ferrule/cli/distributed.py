"""`ferrule worker` and `ferrule submit`: runs handed in on one machine and worked on others."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ferrule.runtime.options import SETTING_OPTIONS, common

if TYPE_CHECKING:
    from ferrule.engine.agent import Agent
    from ferrule.engine.distributed.job_run import Make
    from ferrule.engine.distributed.jobs import Job, Jobs
    from ferrule.storage.journal.protocols import Journal

_database = click.option(
    "--database",
    envvar="FERRULE_DATABASE",
    required=True,
    metavar="URL",
    help="`postgresql://user@host/database`, where queue and journal are. Also FERRULE_DATABASE.",
)


@click.command()
@_database
@click.option(
    "--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Jobs at once."
)
@click.option(
    "--per-tenant", type=click.IntRange(1), help="Jobs of one tenant at once, over all workers."
)
@click.option(
    "--agent",
    "factory",
    metavar="MODULE:FUNCTION",
    help="Makes the agent of a job, from `(job, journal)`.",
)
def worker(database: str, concurrency: int, per_tenant: int | None, factory: str | None) -> int:
    """Work jobs of the queue until it is stopped; take over those of workers that are gone.

    Without --agent a job is worked by the agent that `ferrule run` would make in the job's
    workspace on this machine. Nobody is there to ask: what the rules leave open is a no.
    """
    from ferrule.engine.distributed.worker import Worker

    make = _factory(factory) if factory else assembled
    at_work = Worker(database, make, concurrency=concurrency, per_tenant=per_tenant)
    click.echo(f"worker {at_work.name}: up to {concurrency} jobs at once; Ctrl-C ends it", err=True)
    at_work.run()
    return 0


def _factory(name: str) -> Make:
    """The function of a module, which may lie in the current folder. What the module itself raises
    is shown as it is.
    """
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise click.UsageError(f"--agent {name}: use MODULE:FUNCTION, as `shop.agents:make`")
    here = str(Path.cwd())
    if here not in sys.path:
        # Last, so that a file of this folder cannot take the place of an installed module.
        sys.path.append(here)
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"--agent {name}: {error}") from error
    if not callable(found):
        raise click.UsageError(
            f"--agent {name}: is {type(found).__name__}, not a function of (job, journal)"
        )
    return cast("Make", found)


def assembled(job: Job, journal: Journal) -> Agent:
    """The agent of this machine's settings in the job's workspace, for the job's owner, with the
    shared journal.

    Nobody is asked, also where the worker runs in a terminal: who sits there is not whose job it
    is.
    """
    from ferrule.runtime.assemble import assemble

    def notice(text: str) -> None:
        click.echo(f"! {text}", err=True)

    options = {name.replace(".", "__"): value for name, value in job.options.items()}
    given = {**options, "model": job.model or None, "workspace": job.workspace or None}
    agent = assemble(given, notice=notice, journal=journal).agent
    return agent.working_for(job.user, tenant=job.tenant, journal=journal)


@click.command()
@click.argument("prompt", nargs=-1)
@_database
@click.option("--tenant", default="local", show_default=True, help="Whose job it is.")
@click.option("--user", help="Whose job it is (default: you).")
@click.option(
    "--session", default="", help="A session to go on with, by its whole id (default: a new one)."
)
@click.option("--key", default="", help="An id for the job: handing it in twice gives one run.")
@click.option(
    "--priority",
    type=click.IntRange(0),
    default=0,
    help="1 goes first; 0, the default, before all others.",
)
@click.option("--delay", type=click.FloatRange(0), default=0, help="Seconds until it may begin.")
@click.option(
    "--cron", metavar="NAME=EXPRESSION", help="Hand it in again and again: `nightly=0 3 * * *`."
)
@click.option("--wait", is_flag=True, help="Wait for the answer and print it.")
@click.option("--list", "listing", is_flag=True, help="Only list the newest jobs.")
@click.option("--cancel", metavar="RUN", help="Only cancel a job.")
@common
def submit(prompt: tuple[str, ...], database: str, **given: Any) -> int:
    """Hand a message in as a job for workers. Prints the run's id."""
    from ferrule.engine.distributed.jobs import Jobs

    if not (prompt or given["listing"] or given["cancel"]):
        raise click.UsageError(
            "there is no prompt: say what is to be done, or use --list or --cancel"
        )
    if given["cron"] and (given["wait"] or given["delay"] or given["key"]):
        raise click.UsageError(
            "--cron hands a job in at its own times: leave --wait, --delay and --key out"
        )
    settings = _options(given)
    jobs = Jobs(database)
    try:
        if given["listing"]:
            return _listed(jobs)
        if given["cancel"]:
            jobs.cancel(given["cancel"])
            return 0
        return _handed_in(jobs, " ".join(prompt), settings, given)
    finally:
        jobs.close()


def _listed(jobs: Jobs) -> int:
    from .terminal import visible

    for one in jobs.recent():
        text = " ".join(one.text.split())[:60]
        click.echo(
            visible(f"{one.run:32}  {one.state:9}  {one.tenant:12}  {one.worker:28}  {text}")
        )
    return 0


def _handed_in(jobs: Jobs, prompt: str, settings: dict[str, Any], given: dict[str, Any]) -> int:
    from ferrule.engine.distributed.jobs import Job
    from ferrule.runtime.assemble import person

    from .terminal import visible

    job = Job(
        prompt,
        session=given["session"],
        run=given["key"],
        tenant=given["tenant"],
        user=person() if given["user"] is None else given["user"],
        workspace=str(Path(given["workspace"]).absolute()) if given["workspace"] else "",
        model=given["model"] or "",
        priority=given["priority"],
        options=settings,
    )
    if given["cron"]:
        name, _, expression = str(given["cron"]).partition("=")
        jobs.schedule(name, expression, job)
        click.echo(name)
        return 0
    job = jobs.submit(job, delay=given["delay"])
    click.echo(job.run, err=given["wait"])
    if not given["wait"]:
        return 0
    outcome = jobs.outcome(job.run)
    if outcome["text"]:
        click.echo(visible(outcome["text"]))
    if outcome["stop"] == "done":
        return 0
    code = f" [{outcome['code']}]" if outcome["code"] else ""
    click.echo(visible(f"{outcome['stop']}: {outcome['detail']}{code}"), err=True)
    return 1


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given as options, by key."""
    if given["journal__path"]:
        raise click.UsageError("--journal: a job's journal is in the database of its queue")
    return {
        name.replace("__", "."): given[name]
        for name in sorted(SETTING_OPTIONS - {"model", "journal__path"})
        if given[name] not in (None, ())
    }

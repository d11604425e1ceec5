"""`ferrule submit` and `ferrule worker`: submit runs on one machine and work them on others."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import SETTING_OPTIONS, common_options
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.paths import make_private_folder

from .import_path import allow_named_modules
from .terminal import escape_invisible

with lazy_imports():
    from ferrule.engine.distributed import job as job_data
    from ferrule.engine.distributed import jobs as job_queue
    from ferrule.engine.distributed import worker as workers
    from ferrule.runtime import assemble
    from ferrule.tools import process_resources

if TYPE_CHECKING:
    from ferrule.engine.agent import Agent
    from ferrule.engine.distributed.job_run import MakeAgent
    from ferrule.storage.journal.protocols import Journal

_database = click.option(
    "--database",
    envvar="FERRULE_DATABASE",
    required=True,
    metavar="URL",
    help="`postgresql://user@host/database` of the jobs and journal. Also FERRULE_DATABASE.",
)
_engine = click.option(
    "--engine",
    envvar="FERRULE_ENGINE",
    default="procrastinate",
    show_default=True,
    metavar="NAME[:ADDRESS]",
    help="Engine that distributes jobs, with the address of its server. Also FERRULE_ENGINE.",
)


@click.command()
@_database
@_engine
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Jobs to run at once.",
)
@click.option(
    "--per-tenant",
    type=click.IntRange(1),
    help="Jobs of one tenant to run at once, over all workers.",
)
@click.option(
    "--agent",
    "factory",
    metavar="MODULE:FUNCTION",
    help="Function that makes the agent of a job from `(job, journal)`.",
)
@click.option(
    "--workspaces",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where each session gets a workspace of its own, whose files go where it goes on.",
)
def worker(
    database: str,
    engine: str,
    concurrency: int,
    per_tenant: int | None,
    factory: str | None,
    workspaces: Path | None,
) -> None:
    """Run jobs until stopped, and take over jobs of workers that died.

    Without --agent a job runs with the agent that `ferrule run` would make in the job's workspace
    on this machine. Calls that no rule allows are denied.

    With --workspaces a job that names no folder of this machine works in one of its session. The
    files are kept in the artifact store (`artifacts.store`), which all workers must reach.
    """
    if factory and workspaces:
        raise click.UsageError(
            "--workspaces is for agents made from settings; give your own the plugin "
            "`TravellingFiles`"
        )
    own = partial(assemble_for_job, workspaces=workspaces)
    make_agent = _load_factory(factory) if factory else own
    job_worker = workers.Worker(
        database, make_agent, engine=engine, concurrency=concurrency, per_tenant=per_tenant
    )
    click.echo(
        f"worker {job_worker.name}: up to {concurrency} jobs at once; Ctrl-C stops it", err=True
    )
    job_worker.run()
    process_resources.end_process()


def _load_factory(name: str) -> MakeAgent:
    """Import a function from an installed module or one in the current folder.

    Exceptions that the module itself raises are not caught.
    """
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise click.UsageError(f"--agent {name}: use MODULE:FUNCTION, such as `shop.agents:make`")
    allow_named_modules()
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
    return cast("MakeAgent", found)


def assemble_for_job(
    job: job_data.Job, journal: Journal, *, workspaces: Path | None = None
) -> Agent:
    """Make a job's agent from this machine's settings, for the job's owner.

    It works in the job's workspace and uses the shared journal. Nobody is asked for approval, even
    if the worker runs in a terminal: the person there does not own the job.

    Args:
        job: The job.
        journal: The journal of its session.
        workspaces: Where its session gets a workspace, if the job names none that is here.
    """

    def notice(text: str) -> None:
        click.echo(f"! {text}", err=True)

    options = {name.replace(".", "__"): value for name, value in job.options.items()}
    workspace = job.workspace
    if workspaces is not None and not (workspace and Path(workspace).is_dir()):
        own = workspaces.absolute() / Scope(job.tenant, job.user, job.session).key
        workspace = str(make_private_folder(own))
    given = {**options, "model": job.model or None, "workspace": workspace or None}
    wanted: dict[str, dict[str, Any]] = {} if workspaces is None else {"travelling_files": {}}
    agent = assemble.assemble(given, notice=notice, journal=journal, plugin_fields=wanted).agent
    return agent.copy_for_user(job.user, tenant=job.tenant, journal=journal)


@click.command()
@click.argument("prompt", nargs=-1)
@_database
@_engine
@click.option("--tenant", default="local", show_default=True, help="The job's tenant.")
@click.option("--user", help="The job's owner (default: you).")
@click.option(
    "--session", default="", help="A session to continue, by its full id (default: a new one)."
)
@click.option("--key", default="", help="An id for the job: submitting it twice gives one run.")
@click.option(
    "--priority",
    type=click.IntRange(0),
    default=0,
    help="Lower numbers run first; 0, the default, before all others.",
)
@click.option("--delay", type=click.FloatRange(0), default=0, help="Seconds until it may start.")
@click.option(
    "--cron", metavar="NAME=EXPRESSION", help="Submit it on a schedule: `nightly=0 3 * * *`."
)
@click.option("--wait", is_flag=True, help="Wait for the answer and print it.")
@click.option("--list", "listing", is_flag=True, help="Only list the newest jobs.")
@click.option("--cancel", metavar="RUN", help="Only cancel a job.")
@click.option(
    "--resubmit",
    is_flag=True,
    help="Only hand all open jobs to the engine again, after it lost them or was replaced.",
)
@common_options
def submit(prompt: tuple[str, ...], database: str, engine: str, **given: Any) -> int:
    """Submit a message as a job for workers, and print the run's id."""
    if not (prompt or given["listing"] or given["cancel"] or given["resubmit"]):
        raise click.UsageError("no prompt given; write one, or use --list, --cancel or --resubmit")
    if given["cron"] and (given["wait"] or given["delay"] or given["key"]):
        raise click.UsageError(
            "--cron submits jobs at its own times; leave out --wait, --delay and --key"
        )
    settings = _collect_settings(given)
    jobs = job_queue.Jobs(database, engine=engine)
    try:
        if given["listing"]:
            return _print_jobs(jobs)
        if given["cancel"]:
            jobs.cancel(given["cancel"])
            return 0
        if given["resubmit"]:
            click.echo(f"{jobs.resubmit()} jobs handed to the engine")
            return 0
        return _submit_job(jobs, " ".join(prompt), settings, given)
    finally:
        jobs.close()


def _print_jobs(jobs: job_queue.Jobs) -> int:
    rows = [("RUN", "STATE", "TENANT", "WORKER", "MESSAGE")]
    for job in jobs.recent():
        text = " ".join(job.job.text.split())[:60]
        rows.append((job.job.run, job.state, job.job.tenant, job.worker, text))
    for run, state, tenant, worker, text in rows:
        click.echo(escape_invisible(f"{run:32}  {state:9}  {tenant:12}  {worker:28}  {text}"))
    return 0


def _submit_job(
    jobs: job_queue.Jobs, prompt: str, settings: dict[str, Any], given: dict[str, Any]
) -> int:
    job = job_data.Job(
        prompt,
        session=given["session"],
        run=given["key"],
        tenant=given["tenant"],
        user=assemble.current_user() if given["user"] is None else given["user"],
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
        click.echo(escape_invisible(outcome["text"]))
    if outcome["stop"] == "done":
        return 0
    code = f" [{outcome['code']}]" if outcome["code"] else ""
    click.echo(escape_invisible(f"{outcome['stop']}: {outcome['detail']}{code}"), err=True)
    return 1


def _collect_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given as options, by key."""
    if given["journal__path"]:
        raise click.UsageError(
            "--journal cannot be used here: a job's journal is in the database of the jobs"
        )
    return {
        name.replace("__", "."): given[name]
        for name in sorted(SETTING_OPTIONS - {"model", "journal__path"})
        if given[name] not in (None, ())
    }

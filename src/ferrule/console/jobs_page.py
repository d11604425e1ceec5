"""The page `Jobs`: the jobs of one database, whatever engine hands them to workers.

It reads the table of jobs and asks no engine. FERRULE_DATABASE names the database.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import ClassVar

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.engine.distributed.jobs import libpq_url
from ferrule.engine.distributed.outcomes import JobFigures, JobState, OutcomeTable
from ferrule.engine.plugins.protocol import Parts, Setup
from ferrule.engine.threads import run_blocking

from .plugin_pages import ConsolePage

MOST = 100
"""Jobs that are listed."""
TEMPLATE = """
{% if problem %}<p class="message bad">{{ problem|visible }}</p>{% else %}
<dl class="tiles">
  <div><dt>Waiting</dt><dd>{{ figures.waiting|count }}</dd></div>
  <div><dt>Oldest waits</dt><dd>{{ figures.oldest|round|int }} s</dd></div>
  <div><dt>Working</dt><dd>{{ figures.working|count }}</dd></div>
  <div><dt>Workers</dt><dd>{{ figures.workers|count }}</dd></div>
  <div><dt>Leases</dt><dd>{{ figures.leases|count }}</dd></div>
</dl>
{% if jobs %}
<table class="list">
<thead><tr><th scope="col">Job</th><th scope="col">State</th><th scope="col">Tenant</th>
<th scope="col">User</th><th scope="col">Worker</th><th scope="col" class="n">Seconds</th>
<th scope="col">Message and outcome</th></tr></thead>
<tbody>{% for one in jobs %}
<tr><th scope="row">
{%- if one.outcome or one.worker %}<a class="mono" href="{{ root }}/runs/{{ one.job.session }}">
{%- endif %}{{ one.job.run|visible }}{% if one.outcome or one.worker %}</a>{% endif %}</th>
<td data-label="State">{{ one.state }}</td>
<td data-label="Tenant">{{ one.job.tenant|visible }}</td>
<td data-label="User">{{ one.job.user|visible }}</td>
<td data-label="Worker">{{ one.worker|visible }}</td>
<td class="n" data-label="Seconds">{% if one.seconds is not none %}{{ one.seconds|round(1) }}
{%- endif %}</td>
<td data-label="Message and outcome">{{ one.job.text|truncate(120)|visible }}
{%- if one.outcome and one.outcome.code %}
<span class="bad">{{ one.outcome.code|visible }}: {{ one.outcome.detail|visible }}</span>
{%- endif %}</td></tr>
{% endfor %}</tbody></table>
<p class="quiet small">The newest {{ jobs|length }} jobs of the database in FERRULE_DATABASE.</p>
{% else %}<p class="empty">No jobs in the database in FERRULE_DATABASE.</p>{% endif %}
{% endif %}
"""


@frozen
class JobsPage:
    """The plugin of the page, which adds nothing to an agent."""

    name: ClassVar[str] = "jobs"

    def setup(self, setup: Setup) -> Parts:
        """Return nothing: the page is in the manifest."""
        return Parts()


async def show(page: ConsolePage) -> str:
    """Show how many jobs wait and are worked, and the newest ones."""
    try:
        figures, jobs = await run_blocking(_read)
    except FerruleError as error:
        return page.render(TEMPLATE, problem=str(error))
    return page.render(TEMPLATE, problem="", figures=figures, jobs=jobs)


def _read() -> tuple[JobFigures, list[JobState]]:
    with closing(OutcomeTable(libpq_url(os.environ.get("FERRULE_DATABASE", "")))) as table:
        return table.measure(), table.list_recent(MOST)

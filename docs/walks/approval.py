"""From the button of the console to the tool

A run in the console waits for an approval. A browser that is signed in sends the form of the
question. Where a function had been entered before and was waiting, it goes on:
"""

from __future__ import annotations

import re

import httpx
from tracing import Tracer

from ferrule import Agent, Host, Storage, tool
from ferrule.console.app import make_app
from ferrule.console.assemblies import SessionSetup
from ferrule.console.setup import build_console_over, close_console
from ferrule.console.viewer import Viewer
from ferrule.engine.event_bus.bus import Bus
from ferrule.models.scripted import Scripted, calls, says
from ferrule.runtime.assemble import Assembly
from ferrule.runtime.http.http_security import HttpGuard, Principal
from ferrule.runtime.http.sign_in import BrowserSignIn
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.settings.settings import load_settings

STEPS = """
runtime/http/http_security.py HttpGuard.__call__
runtime/http/sign_in.py BrowserSignIn.find_visitor
runtime/http/sign_in.py BrowserSignIn.is_from_our_page
console/pages/run.py RunActions.answer
console/state.py Console.require_viewer
console/questions.py OpenQuestions.answer
engine/driver.py Driver._ask_person ...
engine/approval_requests.py request_approval ...
engine/event_bus/attachment.py AnnouncingApprover.ask ...
console/open_sessions.py ConsoleSession.ask ...
console/questions.py OpenQuestions.ask ...
permissions/rule_evaluation.py PermissionGate.apply_answer
engine/driver.py Driver.feed
core/machine.py Machine._on_person_answered
core/call_states.py start_ready_calls
engine/session_log.py SessionLog.add
engine/driver.py Driver._drive ...
engine/driver.py Driver._run_tool
engine/session_log.py SessionLog.flush_together
storage/journal/sqlite.py SqliteJournal.append
engine/dispatcher.py Dispatcher.execute
engine/timeouts_and_retries.py run_with_policy
engine/threads.py Threads.run
walks/approval.py note
core/machine.py Machine._on_tool_answered
"""


@tool(risk="high", side_effect="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


async def execute(tracer: Tracer) -> None:
    """Press the button of a question in the console, behind its HTTP guard, as a browser does."""
    steps = [calls(("note", {"text": "milk"})), says("It is written down.")]
    host, token = "127.0.0.1:8000", "a-token-of-the-owner"
    journal = SqliteJournal("journal.db")

    def assemble(setup: SessionSetup, _: Journal | None, bus: Bus | None) -> Assembly:
        storage = Storage(journal=journal, user="owner")
        agent = Agent(
            Scripted(steps), [note], storage=storage, host=Host(bus=bus, interruptible=True)
        )
        return Assembly(agent, load_settings(workspace="."), print, owns_journal=False)

    console = build_console_over(assemble, owner="owner")
    people = {token: Principal("owner", operator=True)}
    guard = HttpGuard(
        make_app(console),
        token=people,
        hosts=[host],
        browsers=BrowserSignIn([f"http://{host}"], people=people),
    )
    transport = httpx.ASGITransport(app=guard)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as browser:
        await browser.post("/login", data={"token": token})
        viewer = Viewer("owner", operator=True)
        session = await console.open_sessions.start(viewer, "note that we need milk")
        page = (await browser.get(f"/runs/{session.id}")).text
        while 'action="/questions/' not in page:
            page = (await browser.get(f"/runs/{session.id}")).text
        form = page[page.index('action="/questions/') :]
        fields = dict(re.findall(r'name="(csrf|digest)" value="([^"]*)"', form))
        path = form.split('"')[1]
        with tracer.record("approval"):
            await browser.post(path, data={**fields, "answer": "once ", "note": ""})
            assert session.run_task is not None
            await session.run_task
        assert session.session.results()[0].data == "noted milk"
    await close_console(console)
    journal.close()

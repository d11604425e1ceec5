"""Run: one session as it continues, its questions, and what can be done with it.

The page is a timeline of entries (see `timeline`). It asks for those that changed after its mark,
and gets all of them if the mark is from before a restart. Actions go to the session pool; people
see the outcome in the timeline, like everyone else who looks.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ferrule.console.entries import Message
from ferrule.console.open_sessions import ConsoleSession
from ferrule.console.questions import Question
from ferrule.console.run_chart import draw_waterfall
from ferrule.console.state import Console, mount_path
from ferrule.console.timeline import Timeline
from ferrule.console.timeline_cache import TimelineSnapshot, lay_out
from ferrule.console.uploads import read_form
from ferrule.console.viewer import Viewer
from ferrule.core.value_class import frozen
from ferrule.engine.event_bus.events import KINDS
from ferrule.engine.threads import run_blocking
from ferrule.storage.journal.sessions import SessionInfo

MAX_ENTRIES = 200
"""Entries that a page starts with; earlier ones are loaded on demand."""


@frozen
class Pane:
    """A session at one moment, for a template."""

    info: SessionInfo
    state: str
    look: TimelineSnapshot
    questions: dict[str, Question]
    """Questions that wait for an answer, by call."""
    below: list[Question]
    """Questions of sub-agents of this session."""
    live: ConsoleSession | None

    @property
    def timeline(self) -> Timeline:
        return self.look.timeline

    @property
    def failed(self) -> str:
        """Why its last run failed, when no event says so."""
        return self.live.failed if self.live is not None else ""

    @property
    def known(self) -> str:
        """State that no event carries. A page that knows this and the mark is up to date."""
        return f"{self.state}{len(self.questions)}.{len(self.below)}"

    @property
    def key(self) -> str:
        """Prefix of this session's element ids on a page."""
        return self.info.session[:12]


async def load_pane(
    console: Console, viewer: Viewer, name: str, mark: str = "", partial_mark: str = ""
) -> Pane:
    """Return a session as it is now; with marks, what changed after them.

    Raises:
        SessionNotFound: there is none, or the viewer may not see it.
        JournalError: the journal cannot be read.
    """
    # In a thread, because another request may be reading a long session and the loop must not wait.
    info, look = await run_blocking(lambda: _look_up(console, viewer, name, mark, partial_mark))
    asked = [
        one
        for one in console.open_sessions.questions.of_session(info.session)
        if one.is_visible_to(viewer)
    ]
    own = {
        one.request.call.id: one for one in asked if one.request.identity.session == info.session
    }
    below = [one for one in asked if one.request.identity.session != info.session]
    state = _session_state(console, info, look.timeline, asked)
    return Pane(info, state, look, own, below, console.open_sessions.find(info.session))


def _session_state(
    console: Console, info: SessionInfo, timeline: Timeline, asked: list[Question]
) -> str:
    """Return the state as `OpenSessions.session_state` does.

    A sub-agent runs where its parent session runs.
    """
    state = console.open_sessions.session_state(info)
    above = console.open_sessions.find(timeline.opened.parent) if timeline.opened else None
    if state == "elsewhere" and above is not None and above.is_busy:
        return "waiting" if asked else "running"
    return state


def _look_up(
    console: Console, viewer: Viewer, name: str, mark: str, partial_mark: str
) -> tuple[SessionInfo, TimelineSnapshot]:
    info = console.find_session(viewer, name)
    return info, console.timelines.fetch(info).snapshot(mark, MAX_ENTRIES, partial_mark)


class RunPages:
    """The handlers that show a session."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def page(self, request: Request) -> Response:
        """Handle `GET /runs/{session}`."""
        shown = await load_pane(
            self._console, self._console.require_viewer(request), request.path_params["session"]
        )
        return self._console.render_page(
            request, "run.html", pane=shown, kinds=" ".join(sorted(KINDS))
        )

    async def changes(self, request: Request) -> Response:
        """Handle `GET /runs/{session}/timeline?mark=&partial=`: the parts that changed, or 204."""
        viewer = self._console.require_viewer(request)
        mark = request.query_params.get("mark", "")
        shown = await load_pane(
            self._console,
            viewer,
            request.path_params["session"],
            mark,
            request.query_params.get("partial", ""),
        )
        same = request.query_params.get("state") == shown.known
        if shown.look.mark == mark and same and not shown.failed:
            return Response(status_code=204)
        return self._console.render_page(request, "run_pane.html", pane=shown)

    async def earlier(self, request: Request) -> Response:
        """Handle `GET /runs/{session}/earlier?before=`: the entries before one that is shown."""
        before = _parse_number(request.query_params.get("before", ""))
        shown = await load_pane(
            self._console, self._console.require_viewer(request), request.path_params["session"]
        )
        first = max(0, before - MAX_ENTRIES)
        entries = shown.timeline.entries[first:before]
        await run_blocking(lambda: lay_out(entries))
        return self._console.render_page(
            request, "run_earlier.html", pane=shown, entries=entries, earlier=first
        )

    def waterfall(self, request: Request) -> Response:
        """Handle `GET /runs/{session}/waterfall`: a chart of its last run.

        Reads the journal, in a thread of the server's.
        """
        info = self._console.find_session(
            self._console.require_viewer(request), request.path_params["session"]
        )
        runs = [
            entry.run
            for entry in self._console.timelines.fetch(info).timeline.entries
            if entry.kind == "message"
        ]
        return HTMLResponse(
            draw_waterfall(
                self._console.journal.records(info.session), run=runs[-1] if runs else ""
            )
        )

    async def message(self, request: Request) -> Response:
        """Handle `GET /runs/{session}/messages/{number}`: one message as text, to be copied."""
        number = _parse_number(request.path_params["number"])
        shown = await load_pane(
            self._console, self._console.require_viewer(request), request.path_params["session"]
        )
        entries = shown.timeline.entries
        entry = entries[number] if number < len(entries) else None
        if not isinstance(entry, Message):
            raise HTTPException(404)
        return PlainTextResponse(entry.text)

    async def call(self, request: Request) -> Response:
        """Handle `GET /runs/{session}/calls/{call}`: one call in full."""
        shown = await load_pane(
            self._console, self._console.require_viewer(request), request.path_params["session"]
        )
        card = shown.timeline.cards.get(request.path_params["call"])
        if card is None:
            raise HTTPException(404)
        return self._console.render_page(request, "call.html", pane=shown, card=card)


class RunActions:
    """The handlers that change a session."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._sessions = console.open_sessions

    async def say(self, request: Request) -> Response:
        """Handle `POST .../say` (text, files): the next message, or one to the run in progress."""
        viewer, info = await self._find_session(request)
        _, message = await read_form(request)
        live = await self._sessions.send_message(viewer, info, message)
        return self._confirm(request, "" if live.is_busy else "the run ended at once")

    async def stop(self, request: Request) -> Response:
        """Handle `POST /runs/{session}/stop` (call, to stop a single call)."""
        _, info = await self._find_session(request)
        call = str((await request.form()).get("call", ""))
        if call:
            self._sessions.stop_call(info.session, call)
        else:
            await self._sessions.stop_run(info.session)
        return self._confirm(request, "call stopped" if call else "run stopped")

    async def resume(self, request: Request) -> Response:
        """Handle `POST /runs/{session}/resume`."""
        viewer, info = await self._find_session(request)
        await self._sessions.resume_run(viewer, info)
        return self._confirm(request, "run resumed")

    async def fork(self, request: Request) -> Response:
        """Handle `POST /runs/{session}/fork` (runs): redirect to the new session."""
        _, info = await self._find_session(request)
        runs = _parse_number(str((await request.form()).get("runs", "")))
        name = await self._sessions.fork(info, runs)
        return redirect(request, f"/runs/{name}")

    async def retry(self, request: Request) -> Response:
        """Handle `POST /runs/{session}/retry` (run): redirect to the session that does it again."""
        viewer, info = await self._find_session(request)
        run = _parse_number(str((await request.form()).get("run", "")))
        live = await self._sessions.retry(viewer, info, run)
        return redirect(request, f"/runs/{live.id}")

    async def leave(self, request: Request) -> Response:
        """Handle `POST /runs/{session}/leave`: release it, so that another process can open it."""
        _, info = await self._find_session(request)
        await self._sessions.release(info.session)
        return self._confirm(request, "session released")

    async def answer(self, request: Request) -> Response:
        """Handle `POST /questions/{question}` (digest, answer as `choice grant`, note)."""
        viewer = self._console.require_viewer(request)
        form = await request.form()
        choice, _, grant = str(form.get("answer", "")).partition(" ")
        said = {name: str(form.get(name, "")) for name in ("digest", "note")}
        asked = self._sessions.questions.answer(
            viewer, request.path_params["question"], said["digest"], choice, grant, said["note"]
        )
        tool = asked.request.tool.full_name
        return self._confirm(
            request,
            f"{tool}: {'denied' if choice == 'deny' else 'allowed'}",
            to=f"/runs/{asked.session}",
        )

    async def _find_session(self, request: Request) -> tuple[Viewer, SessionInfo]:
        viewer = self._console.require_viewer(request)
        name = request.path_params["session"]
        return viewer, await run_blocking(lambda: self._console.find_session(viewer, name))

    def _confirm(self, request: Request, text: str, to: str = "") -> Response:
        """Return a message if htmx asked, otherwise redirect to the page."""
        if request.headers.get("hx-request") != "true":
            return redirect(request, to or f"/runs/{request.path_params['session']}")
        return self._console.render_page(request, "message.html", text=text, hint="", good=True)


def routes(console: Console) -> list[BaseRoute]:
    """Return `/runs/{session}` with everything below it, and `/questions/{question}`."""
    pages = RunPages(console)
    deeds = RunActions(console)
    at = "/runs/{session}"
    return [
        Route(at, pages.page),
        Route(f"{at}/timeline", pages.changes),
        Route(f"{at}/earlier", pages.earlier),
        Route(f"{at}/messages/{{number}}", pages.message),
        Route(f"{at}/calls/{{call}}", pages.call),
        Route(f"{at}/waterfall", pages.waterfall),
        *(
            Route(f"{at}/{name}", getattr(deeds, name), methods=["POST"])
            for name in ("say", "stop", "resume", "fork", "retry", "leave")
        ),
        Route("/questions/{question}", deeds.answer, methods=["POST"]),
    ]


def redirect(request: Request, to: str) -> Response:
    """Redirect to another page (a path of the console), for htmx and plain requests."""
    to = f"{mount_path(request)}{to}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=200, headers={"hx-redirect": to})
    return Response(status_code=303, headers={"location": to})


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(422, "expected a number")
    return int(text)

"""A pytest plugin that runs bundles of recorded sessions (`*.ferrule`) as tests.

Each session of a bundle is one test: it is replayed through the installed version, offline, and
must equal the recording byte for byte (`engine.replay.replay`). The fixture `rerun_bundle`
gives the recorded answers to the tools of an agent as they are now:

    def test_the_tools_still_answer_as_recorded(rerun_bundle):
        rerun_bundle("tests/holiday.ferrule", Agent("scripted:none", tools=[holidays]))

It fails with the differences, and otherwise returns the results (`engine.replay.rerun.RerunReport`,
one per session). The plugin is enabled by name, with `-p ferrule.testing.pytest_plugin` or in the
root `conftest.py`; an entry point would load it in every pytest that sees Ferrule's metadata.
Nothing else of Ferrule is imported until there is a bundle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.events import JournalRecord
from ferrule.engine.agent import Agent
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.replay import replay
from ferrule.engine.replay.rerun import RerunReport, rerun
from ferrule.storage.export.bundles import read_recording

SUFFIX = ".ferrule"


class ReplayFailed(AssertionError):
    """Raised when a session differs from its recording."""


def make_node(kind: type[Any], parent: pytest.Collector, **more: Any) -> Any:
    """Make a pytest node; the parameters of pytest's own constructor have no types."""
    return kind.from_parent(parent, **more)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Collect bundles as test files."""
    if file_path.suffix == SUFFIX and file_path.is_file():
        return make_node(BundleFile, parent, path=file_path)
    return None


class BundleFile(pytest.File):
    """A bundle of recorded sessions."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each session. A bundle that cannot be read fails as a whole."""
        for records in read_recording(self.path):
            session: RecordedSession = make_node(RecordedSession, self, name=records[0].session)
            session.records = records
            yield session


class RecordedSession(pytest.Item):
    """A recorded session of a bundle."""

    records: list[JournalRecord]

    def runtest(self) -> None:
        """Replay the session and compare it with its recording."""
        replayed = replay(self.records)
        if not replayed.same:
            raise ReplayFailed("; ".join(str(difference) for difference in replayed.differences))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return one line with the differences."""
        if isinstance(excinfo.value, ReplayFailed):
            return f"session {self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the bundle as the place of the test."""
        return self.path, None, f"session {self.name}"


@pytest.fixture
def rerun_bundle() -> Callable[[str | Path, Agent[Any, Any]], list[RerunReport]]:
    """Rerun the sessions of a bundle with recorded answers and the agent's own tools.

    Fails if the tools answer differently.
    """

    def rerun_bundle(path: str | Path, agent: Agent[Any, Any]) -> list[RerunReport]:
        async def again() -> list[RerunReport]:
            sessions = read_recording(Path(path))
            return [await rerun(Recording.of(records), agent, tools="live") for records in sessions]

        seen = asyncio.run(again())
        different = [
            call for one in seen for run in one.runs for call in run.calls if not call.same
        ]
        if different or not all(one.same for one in seen):
            lines = [
                (
                    f"{call.call}\n  -> {call.result}\nrecorded {call.recorded_call}\n  -> "
                    f"{call.recorded_result}"
                )
                for call in different
            ]
            raise ReplayFailed("\n".join(lines) or "the runs ended otherwise")
        return seen

    return rerun_bundle

"""Hot reload in the console: a message is worked with what files say when it begins, as far as a
person trusts them.
"""

from __future__ import annotations

import json
from pathlib import Path

from ferrule.console.open_sessions import ConsoleSession
from ferrule.console.setup import build_console, close_console
from ferrule.console.viewer import Viewer
from ferrule.storage.trust import TrustStore

GREET = (
    "---\nparameters: {{}}\nside_effect: none\nscript: |\n  def run(args): return "
    '"{}"\n---\nGreets.\n'
)


def greetings(live: ConsoleSession) -> list[str]:
    results = live.session.driver.machine.results()
    return [str(result.data) if result.success else str(result.error_type) for result in results]


async def test_a_changed_tool_is_withdrawn_from_the_next_message_on_and_back_once_it_is_trusted(
    tmp_path: Path, own_folders: Path
) -> None:
    file = tmp_path / "work/.ferrule/tools/greet.md"
    file.parent.mkdir(parents=True)
    file.write_text(GREET.format("one"))
    TrustStore().trust(tmp_path / "work")
    step = [{"call": [{"tool": "greet", "arguments": {}}]}, {"say": "Done."}]
    (tmp_path / "talk.json").write_text(json.dumps(step * 3))
    told: list[str] = []
    console = build_console(
        {"model": f"scripted:{tmp_path}/talk.json", "workspace": str(tmp_path / "work")},
        told.append,
    )
    try:
        live = await console.open_sessions.start(Viewer(console.owner, operator=True), "Hello.")
        assert live.run_task is not None
        await live.run_task
        said = [greetings(live)]
        file.write_text(GREET.format("two"))
        for trusted in (False, True):
            if trusted:
                TrustStore().trust(tmp_path / "work")
            await console.open_sessions.start_run(live, "Again.")
            await live.run_task
            said.append(greetings(live))
        assert said == [["one"], ["not_found"], ["two"]]
    finally:
        await close_console(console)

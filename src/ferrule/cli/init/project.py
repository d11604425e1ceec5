"""The files that `ferrule init` writes for a new agent project, as texts.

They are working examples: the tools run, the tests pass, the tool file passes its own tests, and
the hook is called. A newcomer changes them into their own; Ferrule needs none of them.
"""

from __future__ import annotations

import re

from ferrule.cli.tools.templates import SAMPLE_TOOL_FILE

from .settings_template import render_settings

TOOL = "count_words"
"""The tool file of a new project."""

TOOLS = '''\
"""The tools of this project, and an agent that has these tools only.

`ferrule chat` and the other commands load the tools once the folder is trusted (`tools.python` in
.ferrule/ferrule.yaml).

    python tools.py "What do three coffees cost?"
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from ferrule import READS, Agent, Context, ErrorType, ToolFailed, Workspace, tool

PRICES = {"coffee": 2.8, "tea": 2.5, "cake": 4.2}


@tool(side_effect="none")
def price(item: Literal["coffee", "tea", "cake"], count: int = 1) -> float:
    """What something costs, in euro.

    Args:
        item: What to buy.
        count: How many of it.
    """
    if count < 1:
        # The model reads this, so it says what was wrong and what to do instead.
        raise ToolFailed(ErrorType.VALIDATION_FAILED, f"count is {count}; it must be 1 or more")
    return round(PRICES[item] * count, 2)


@tool(side_effect="read")
def longest_line(path: Annotated[str, READS], context: Context) -> str:
    """The longest line of a text file of this folder.

    Args:
        path: The file, relative to the folder.
    """
    # The workspace keeps the tool inside the folder and away from secrets, like the shipped tools.
    lines = context.resource(Workspace).read_text(path).splitlines()
    return max(lines, key=len, default="")


def agent(model: Any = "local:smollm2", **options: Any) -> Agent:
    """Make an agent with these tools that works in this folder. `model` is `provider:model`."""
    options.setdefault("workspace", Path(__file__).parent)
    return Agent(model, [price, longest_line], **options)


if __name__ == "__main__":
    print(agent().run_sync(" ".join(sys.argv[1:]) or "What do three coffees cost?").text)
'''

TESTS = '''\
"""Tests of the tools: a script plays the model, so they need no model and no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ferrule import Permissions, RunResult, Scripted, Storage
from ferrule.models.scripted import calls, says
from tools import agent, price


def run(folder: Path, *requests: tuple[str, dict[str, Any]]) -> RunResult:
    """Run the agent with a model that makes these calls, one after another."""
    model = Scripted([*(calls(one) for one in requests), says("Done.")])
    # Reading a file needs approval; here a rule allows it.
    scripted_agent = agent(
        model,
        workspace=folder,
        storage=Storage(journal=":memory:"),
        permissions=Permissions(allow=["Read(**)"]),
    )
    return scripted_agent.run_sync("Go.")


def test_a_price_is_per_piece() -> None:
    assert price("coffee", 3) == 8.4


def test_the_model_gets_a_value(tmp_path: Path) -> None:
    [result] = run(tmp_path, ("price", {"item": "cake", "count": 2})).results
    assert result.data == 8.4


def test_the_model_is_told_what_was_wrong(tmp_path: Path) -> None:
    wrong = ("price", {"item": "pizza"}), ("price", {"item": "tea", "count": 0})
    results = run(tmp_path, *wrong).results
    assert [str(result.error_type) for result in results] == ["validation_failed"] * 2
    assert "it must be 1 or more" in (results[1].error_message or "")


def test_a_tool_reads_within_its_folder_and_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "menu.txt").write_text("tea\\ncoffee\\n")
    (tmp_path / ".env").write_text("KEY=1")
    asked = [("longest_line", {"path": path}) for path in ("menu.txt", ".env", "../other.txt")]
    found, *refused = run(tmp_path, *asked).results
    assert found.data == "coffee"
    assert not any(result.success for result in refused)
'''

HOOK = """\
---
events: [tool.pre]
when: name == "run_command"
script: |
  def handle(event, payload):
      if "push" in str(payload["arguments"]["command"]):
          return block("pushing is done by a person")
      return allow()
---
No model pushes from here. The hook runs before each call that `when` matches and the rules allow.
"""

IGNORE = """\
__pycache__/
.pytest_cache/
.venv/
.env
"""

CONFIGURATION = """\
[project]
name = "{name}"
version = "0"
requires-python = ">=3.11"
dependencies = ["ferrule[cli,files,local]"]

[dependency-groups]
dev = ["pytest"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

README = """\
# {title}

An agent project made by `ferrule init`. Change everything.

```
pip install pytest                  once, for the next line
python -m pytest                    test tools.py: a script plays the model, no network
ferrule tools test                  run the tests in tool files, each in its own empty folder
ferrule validate                    check the files in .ferrule/
ferrule tools list                  list the tools: price, longest_line, count_words, shipped ones
ferrule tools call price item=coffee count=3
ferrule tools call count_words text="to be or not"
ferrule models pull smollm2         download a small local model, once
ferrule chat                        chat with a model that works in this folder
python tools.py "What do three coffees cost?"
```

| File | Content |
|---|---|
| `tools.py` | two tools as typed Python functions, and the agent that has them |
| `tests/test_tools.py` | their tests |
| `.ferrule/ferrule.yaml` | every setting, as a comment with its default |
| `.ferrule/tools/count_words.md` | a tool as a file: parameters, a short script, its own tests |
| `.ferrule/hooks/keep_main.md` | a hook: blocks commands that push |
| `pyproject.toml`, `.gitignore` | for pip, pytest and git |

`tools.python` in the settings names `tools.py`, so `ferrule run`, `ferrule chat`, the console and
the servers have its tools. They run in Ferrule's own process, without a sandbox.

What `ferrule init` wrote is trusted as it is. After a change of `tools.py` or a file in `.ferrule/`
nothing of this folder takes effect until `ferrule trust` has shown the difference and you agreed.
The same holds for whoever clones this project: none of it runs before they reviewed and trusted it.

More tools: `ferrule tools new get_weather city:string 'unit:c|f=c'`, and with `--python` as a
function with a test.
"""


def project_files(name: str) -> dict[str, str]:
    """Return the files of a project called `name`, by their names below its folder."""
    plain = re.sub(r"[^A-Za-z0-9]", "-", name).strip("-")
    return {
        "README.md": README.format(title=name),
        "tools.py": TOOLS,
        "tests/test_tools.py": TESTS,
        ".ferrule/ferrule.yaml": render_settings(
            project=True, chosen={"tools.python": ("tools.py",)}
        ),
        f".ferrule/tools/{TOOL}.md": SAMPLE_TOOL_FILE,
        ".ferrule/hooks/keep_main.md": HOOK,
        "pyproject.toml": CONFIGURATION.format(name=plain.lower() or "agent"),
        ".gitignore": IGNORE,
    }

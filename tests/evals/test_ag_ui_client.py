"""The protocol's own client from npm, where `make lab NAME=ag-ui-client` has installed it."""

from __future__ import annotations

from pathlib import Path

import ag_ui_client
import pytest


@pytest.mark.skipif(
    not ag_ui_client.is_installed(),
    reason="`make lab NAME=ag-ui-client` has not installed the client here",
)
def test_the_protocols_own_client_is_served_asked_and_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ag_ui_client.main() == 0
    assert "7 runs, 0 faults" in capsys.readouterr().out


def test_a_conversation_that_is_not_as_it_should_be_is_named(tmp_path: Path) -> None:
    run = {"text": "", "error": "", "outcome": "success", "events": [], "pending": []}
    seen = {"runs": [{**run, "interrupts": []} for _ in range(7)], "messages": []}
    faults = ag_ui_client.find_faults(seen, tmp_path)
    assert "each run ends as it should" in faults and "a question names its call" in faults
    assert "no run fails" not in faults

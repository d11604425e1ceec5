"""Which folder a server serves, when nobody named one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule import ConfigError
from ferrule.runtime.served_folder import require_folder


def test_a_server_that_was_started_in_the_root_asks_for_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(ConfigError, match="whole machine") as caught:
        require_folder({"workspace": None})
    assert "--workspace" in caught.value.hint
    require_folder({"workspace": "/"})
    require_folder({"workspace": str(tmp_path)})
    monkeypatch.chdir(tmp_path)
    require_folder({"workspace": None})

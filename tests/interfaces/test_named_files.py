"""A file that a person names is not written through a link that a command may have made."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule.cli.new_files import write_named_file
from ferrule.core.errors import ConfigError


@pytest.mark.parametrize("name", ["report.json", "out/report.json", "./sub/../report.json"])
def test_no_link_of_the_current_folder_leads_a_report_elsewhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (work / "out").symlink_to(tmp_path / "home")
    (work / "report.json").symlink_to(tmp_path / "home/report.json")
    monkeypatch.chdir(work)
    with pytest.raises(ConfigError, match="is a link, which a command may have made"):
        write_named_file(Path(name), "{}")
    assert list((tmp_path / "home").iterdir()) == []


def test_a_link_of_the_person_elsewhere_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("work", "real"):
        (tmp_path / name).mkdir()
    (tmp_path / "reports").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "work")
    write_named_file(tmp_path / "reports/a.json", "{}")
    write_named_file(Path("b.json"), "{}")
    assert (tmp_path / "real/a.json").read_text() == "{}"
    assert (tmp_path / "work/b.json").read_text() == "{}"

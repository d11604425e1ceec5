"""`ferrule uninstall`: list what Ferrule keeps on this machine, and remove it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.runtime.lazy_imports import lazy_imports

from .confirmation import confirm

with lazy_imports():
    from ferrule.storage import paths, trust
    from ferrule.storage.settings import settings

_WHAT = {
    "state": "journal, trust, remembered rules, artifacts: cannot be made again",
    "config": "your own settings, servers, skills and agents",
    "cache": "models and copies: are downloaded or made again",
}
_MANY = 20


@frozen
class KeptFolder:
    """A folder of Ferrule: its kind, where it is, and what is directly in it with its bytes.

    `chosen_by` is the variable that names it; "" for the usual place.
    """

    kind: str
    path: Path
    entries: tuple[tuple[str, int], ...]
    chosen_by: str = ""

    @property
    def bytes(self) -> int:
        """The size of all that is in it."""
        return sum(size for _, size in self.entries)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only list what is there.")
@click.option("--yes", is_flag=True, help="Remove it without asking.")
def uninstall(dry_run: bool, yes: bool) -> int:
    """List what Ferrule keeps on this machine and remove it.

    The program itself stays: remove it with the tool that installed it. A folder that a variable
    names (`FERRULE_STATE`), and files in your projects (`.ferrule/`), are listed and stay.

    \b
    Examples:
      ferrule uninstall --dry-run     what is on disk, and how large it is
      ferrule uninstall --yes         remove it
    """  # noqa: D301  click reads the mark
    folders = list_kept_folders()
    for folder in folders:
        _show(folder)
    elsewhere = list(_list_elsewhere())
    for line in elsewhere:
        click.echo(line)
    click.echo("the program: `pip uninstall ferrule`, `pipx uninstall ferrule` or the like")
    removable = [folder for folder in folders if not folder.chosen_by]
    if dry_run or not removable:
        return 0
    code = confirm("remove these folders for good?", yes, "nothing was removed")
    if code:
        return code
    for folder in removable:
        try:
            shutil.rmtree(folder.path)
        except OSError as error:
            raise FerruleError(
                f"`{folder.path}` could not be removed whole: {error.strerror}",
                code="uninstall",
                hint="end what still uses it, and run the command again",
            ) from error
        click.echo(f"removed {folder.path}", err=True)
    return 0


def list_kept_folders() -> list[KeptFolder]:
    """Return the folders of Ferrule that exist."""
    found: list[KeptFolder] = []
    for kind in _WHAT:
        path: Path = getattr(paths, kind)()
        if not path.is_dir() or any(path == known.path for known in found):
            continue
        variable = f"FERRULE_{kind.upper()}"
        chosen_by = variable if os.environ.get(variable) else ""
        entries = tuple(
            sorted((entry.name, measure(Path(entry.path))) for entry in os.scandir(path))
        )
        found.append(KeptFolder(kind, path, entries, chosen_by))
    return found


def measure(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            total += os.lstat(f"{folder}/{name}").st_size
    return total


def _show(folder: KeptFolder) -> None:
    named = f", named by {folder.chosen_by}: stays" if folder.chosen_by else ""
    click.echo(f"{folder.path}  {_format_size(folder.bytes)}  ({_WHAT[folder.kind]}{named})")
    for name, size in folder.entries[:_MANY]:
        click.echo(f"  {_format_size(size):>9}  {name}")
    if len(folder.entries) > _MANY:
        click.echo(f"  … and {len(folder.entries) - _MANY} more")


def _list_elsewhere() -> Iterator[str]:
    """Yield what Ferrule reads or writes elsewhere."""
    try:
        journal = settings.load_settings().journal
        for root in trust.TrustStore().trusted_folders():
            yield f"{root}: a folder that you trust; its own files stay"
    except FerruleError as error:
        yield f"settings could not be read: {error}"
        return
    if not isinstance(journal, Path):
        yield f"journal: {journal}: stays"
    elif not any(journal.is_relative_to(folder.path) for folder in list_kept_folders()):
        yield f"journal: `{journal}`, named by your settings: stays"


def _format_size(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"

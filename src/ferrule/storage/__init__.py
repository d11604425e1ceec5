"""What outlives a process: the journal, artifacts, settings, the audit, and trust.

Packages: `artifacts`, `audit`, `export`, `journal`, `plugins`, `settings`, `statistics`.
Modules: `attack_results`, `container_record`, `locations`, `paths`, `private_files`,
`said_notices`, `store_urls`, `trust`, `xdg_folders`.

Nothing here knows about models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .artifacts.files import FileArtifactStore
    from .artifacts.objects import ObjectArtifactStore
    from .artifacts.postgres import PostgresArtifactStore
    from .artifacts.store import ArtifactStore, RunArtifacts, Scope
    from .audit.audit import AuditedCall, audit_calls
    from .audit.explanation import explain
    from .audit.export import export_audit
    from .audit.past_calls import read_past_calls
    from .audit.verification import verify_sessions
    from .export.bundles import import_bundle, read_recording, write_bundle
    from .export.jsonl import export_jsonl, import_jsonl
    from .export.transcripts import write_markdown
    from .journal.postgres import PostgresJournal
    from .journal.postgres_schema import create_script, grant_script
    from .journal.protocols import Journal
    from .journal.sqlite import SqliteJournal
    from .settings.settings import load_settings
    from .trust import PROJECT_FILE as PROJECT_FILE
    from .trust import ConfigurationSnapshot, TrustStore

__all__ = [
    "ArtifactStore",
    "AuditedCall",
    "ConfigurationSnapshot",
    "FileArtifactStore",
    "Journal",
    "ObjectArtifactStore",
    "PostgresArtifactStore",
    "PostgresJournal",
    "RunArtifacts",
    "Scope",
    "SqliteJournal",
    "TrustStore",
    "audit_calls",
    "create_script",
    "explain",
    "export_audit",
    "export_jsonl",
    "grant_script",
    "import_bundle",
    "import_jsonl",
    "load_settings",
    "read_past_calls",
    "read_recording",
    "verify_sessions",
    "write_bundle",
    "write_markdown",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".artifacts.files": ("FileArtifactStore",),
        ".artifacts.objects": ("ObjectArtifactStore",),
        ".artifacts.postgres": ("PostgresArtifactStore",),
        ".artifacts.store": (
            "RunArtifacts",
            "Scope",
            "ArtifactStore",
        ),
        ".audit.audit": (
            "AuditedCall",
            "audit_calls",
        ),
        ".audit.explanation": ("explain",),
        ".audit.export": ("export_audit",),
        ".audit.past_calls": ("read_past_calls",),
        ".audit.verification": ("verify_sessions",),
        ".export.bundles": (
            "import_bundle",
            "read_recording",
            "write_bundle",
        ),
        ".export.jsonl": (
            "export_jsonl",
            "import_jsonl",
        ),
        ".export.transcripts": ("write_markdown",),
        ".journal.postgres": ("PostgresJournal",),
        ".journal.postgres_schema": (
            "create_script",
            "grant_script",
        ),
        ".journal.protocols": ("Journal",),
        ".journal.sqlite": ("SqliteJournal",),
        ".settings.settings": ("load_settings",),
        ".trust": ("PROJECT_FILE", "ConfigurationSnapshot", "TrustStore"),
    },
)

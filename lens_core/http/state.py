"""State that the routes share: the daemon's parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.errors import Unavailable
from ..base.process import MemoryRelease
from ..base.self_metrics import SelfMetrics
from ..detection.detectors import EvidenceRules
from ..detection.log_lines.log_tails import LogTails
from ..directory.directory import Directory
from ..pipeline.tap import Tap
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Gate, Sink, Source
from ..plugin_api.siblings import Siblings
from ..plugin_api.store import Store
from ..plugin_host.guard import Guard
from .sessions import Sessions
from .tokens import TokenStore


@dataclass
class ApiState:
    """Shared by all routes. Sizes in bytes; `status`, `ready`, `replay`, `dead_letters`, `erase` are the daemon's.

    `api_gate` takes what people say about pods on to the store, `directory_file`
    keeps it for the next start. `session_file` keeps who is logged in to the page.
    """

    metrics: SelfMetrics
    tokens: TokenStore
    directory: Directory
    sources: Sequence[Source]
    status: Callable[[], Any]
    ready: Callable[[], str]
    replay: Callable[[str], Any]
    dead_letters: Callable[[str], Any] | None = None
    erase: Callable[[str, str | None], Awaitable[Mapping[str, int]]] | None = None
    cluster_status: Callable[[], Awaitable[Any]] | None = None
    store: Store | None = None
    store_problem: Callable[[], str] = lambda: ""
    guards: Mapping[str, Guard] = field(default_factory=dict)
    rules: EvidenceRules = field(default_factory=lambda: EvidenceRules([]))
    log_tails: Iterable[LogTails] = ()
    sinks: Sequence[Sink] = ()
    analyzers: Sequence[Analyzer] = ()
    api_gate: Gate | None = None
    directory_file: Path | None = None
    siblings_of: Callable[[str], Siblings] = lambda kind: Siblings()
    tap: Tap = field(default_factory=Tap)
    session_file: Path | None = None
    share_logins: Callable[[], Awaitable[None]] | None = None
    public_url: str = ""
    cluster_name: str = "default"
    open_ingest: bool = False
    metrics_open: bool = False
    cors_origins: Sequence[str] = ()
    frame_ancestors: Sequence[str] = ()
    max_body_bytes: int = 16 * 1024 * 1024
    max_in_flight_bytes: int = 64 * 1024 * 1024
    in_flight_bytes: int = field(default=0)
    memory: MemoryRelease = field(default_factory=MemoryRelease)
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.tokens, self.session_file)

    def required_store(self) -> Store:
        """The store that answers queries. Raises Unavailable when the configuration has none."""
        if self.store is None:
            raise Unavailable(
                "no sink of this configuration can answer queries; add one, for example `sinks: {store: "
                "{type: postgresql}}`",
                retry_after_seconds=60,
            )
        if problem := self.store_problem():
            raise Unavailable(f"the store is not started: {problem}", retry_after_seconds=5)
        return self.store

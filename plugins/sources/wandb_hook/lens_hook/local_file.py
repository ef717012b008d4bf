"""`{path}/node_{node_rank}/rank_{local_rank}/wandb_metrics.jsonl`: one object per logged step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import say, settings

if TYPE_CHECKING:
    from .wire import Merged


class LocalFile:
    """Appends rows as `{"timestamp", "step", "data"}`; a file that cannot be written is said once and left."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        node = settings.node_rank(environment) or 0
        rank = settings.local_rank(environment) or 0
        self.path = os.path.join(path, f"node_{node}", f"rank_{rank}", "wandb_metrics.jsonl")

    def append_rows(self, rows: Sequence[Merged]) -> None:
        """Append `rows`, in one write so that processes of one rank do not mix their lines."""
        lines = [
            json.dumps({"timestamp": event_time, "step": row_step, "data": values}, allow_nan=False)
            for _, values, row_step, event_time, _ in rows
        ]
        if not lines:
            return
        try:
            self._append(("\n".join(lines) + "\n").encode("ascii"))
        except OSError as error:
            say.once("local", f"cannot write {self.path}: {error.strerror}")

    def _append(self, data: bytes) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

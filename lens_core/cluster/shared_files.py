"""Small files of the data directory that all daemons share: tokens and logins.

Each daemon keeps its file, which commands on its machine change, and a value in the KV bucket holds what they all have.
Both are mappings by name: what was added or removed here since the last comparison is added or removed there, then the
whole is written here. Two changes at once are both kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..base.errors import LensError
from ..delivery.sending.policy import is_set_within
from .connection import Connection, Fenced
from .key_values import KeyValues
from .tasks import cancel_tasks

logger = logging.getLogger("lens.cluster")

LOOK_SECONDS = 1.0
# The others say when they have changed something; a daemon that died before it could is why they are asked, too.
ASK_SECONDS = 5.0
TRIES = 5


class SharedFile:
    """A JSON file: a mapping, or a list of objects with a `name`."""

    def __init__(self, path: Path, keys: KeyValues) -> None:
        self.path = path
        self._keys = keys
        self._key = f"files.{path.stem}"
        self._is_list = False
        # The content at the last comparison; it is kept, so that a change made while no daemon ran counts.
        self._base_path = path.with_suffix(".base")
        self._base = self._load_base()
        self._compared: tuple[int, int, int] | None = None

    @property
    def has_changed(self) -> bool:
        """Whether the file is another one than at the last comparison."""
        return self._compared != self._state()

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    async def exchange_file(self) -> bool:
        """Compare and exchange; whether something was told to the others. Raises LensError."""
        for _ in range(TRIES):
            compared = self._state()
            local = self._load_file()
            entry = await self._keys.read_entry(self._key)
            remote: dict[str, Any] = msgspec.json.decode(entry.text) if entry is not None and entry.text else {}
            merged = _merge_changes(self._base, local, remote)
            if merged != remote:
                try:
                    await self._keys.write_entry(
                        self._key, msgspec.json.encode(merged).decode(), entry.revision if entry is not None else 0
                    )
                except Fenced:
                    continue
            if merged != local:
                has_names = all(isinstance(one, dict) and one.get("name") == name for name, one in merged.items())
                is_list = self._is_list or bool(merged and has_names)
                _write_file(self.path, list(merged.values()) if is_list else merged)
                compared = self._state()
            if merged != self._base:
                _write_file(self._base_path, merged)
                self._base = merged
            self._compared = compared
            return merged != remote
        return False

    def _load_file(self) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise LensError(f"{self.path.name} cannot be read: {error}") from None
        self._is_list = isinstance(found, list)
        return {one["name"]: one for one in found} if isinstance(found, list) else dict(found)

    def _load_base(self) -> dict[str, Any]:
        try:
            return dict(msgspec.json.decode(self._base_path.read_bytes()))
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, ValueError) as error:
            logger.warning("%s cannot be read; what was revoked here meanwhile comes back. %s", self._base_path, error)
            return {}


def _write_file(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.shared")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(content))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _merge_changes(base: Mapping[str, Any], local: Mapping[str, Any], remote: Mapping[str, Any]) -> dict[str, Any]:
    """The remote mapping with the changes that lead from the base to the local one."""
    merged = {name: value for name, value in remote.items() if name in local or name not in base}
    return {**merged, **{name: value for name, value in local.items() if base.get(name) != value}}


class SharedFiles:
    """Keeps several files in step, at once when one of the daemons says so."""

    def __init__(self, connection: Connection, keys: KeyValues, paths: Sequence[Path]) -> None:
        self._connection = connection
        self._files = [SharedFile(path, keys) for path in paths]
        self._subject = f"{connection.settings.name}-files"
        self._came = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Take over what the others have, then follow. Raises LensError."""
        await self._connection.subscribe(self._subject, self._on_news)
        self._connection.call_on_reconnect(self._came.set)
        await self.exchange_files()
        self._task = asyncio.create_task(self._exchange_repeatedly(), name="shared files")

    async def stop(self) -> None:
        """Follow no more."""
        await cancel_tasks([self._task])

    async def exchange_files(self) -> None:
        """Exchange all files now. Raises LensError."""
        async with self._lock:
            told = [await file.exchange_file() for file in self._files]
        if any(told):
            await self._connection.notify(self._subject)

    async def _on_news(self, message: object) -> None:
        self._came.set()

    async def _exchange_repeatedly(self) -> None:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        while True:
            has_news = await is_set_within(LOOK_SECONDS, self._came)
            if not (has_news or loop.time() - asked_at >= ASK_SECONDS or any(file.has_changed for file in self._files)):
                continue
            self._came.clear()
            try:
                await self.exchange_files()
            except LensError as error:
                logger.debug("Tokens and logins are not compared now. error=%s", error)
                await asyncio.sleep(LOOK_SECONDS)
                self._came.set()
            asked_at = loop.time()

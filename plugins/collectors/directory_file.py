"""Pods, workloads and devices from a YAML or JSON file that somebody keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from lens_core import BadRequest, Collector, Context, LensError, Pod, Record, hookimpl
from lens_core.plugin_api.encoding import pods_of_object

MAX_FILE_BYTES = 64 * 1024 * 1024


class DirectoryFileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The path of the file."""

    path: Annotated[str, Meta(min_length=1, description="a YAML or JSON file of the shape of PUT /api/v1/directory")]

    def __post_init__(self) -> None:
        if Path(self.path).is_dir():
            raise ValueError("path: is a directory; name a file in it")


class DirectoryFile(Collector):
    """Reads a file of pods whenever it changes; one that is wrong changes nothing and is said."""

    name = "directory_file"
    also_called = ("file_sd", "file_sd_configs")
    Settings = DirectoryFileSettings
    interval_seconds = 20.0

    settings: DirectoryFileSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._seen: tuple[int, int, int] | None = None
        self._pods: list[Pod] = []
        self._unsent: list[Pod] = []

    async def check(self) -> None:
        """Read the file."""
        await asyncio.to_thread(read_file, Path(self.settings.path))

    async def collect(self) -> Sequence[Record]:
        """The pods of the file if it has changed. Raises LensError that says what is wrong with it."""
        path = Path(self.settings.path)
        try:
            stat = path.stat()
        except OSError as error:
            raise LensError(f"{path}: {error.strerror}") from None
        state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if state != self._seen:
            self._pods = await asyncio.to_thread(read_file, path)
            self._unsent = self._pods
            self._seen = state
            self.context.directory.replace(self._pods, self.context.name)
        self.context.directory.confirm(self.context.name)
        return self._unsent

    async def stored(self) -> None:
        """Mark the records that were handed over as stored."""
        self._unsent = []


def read_file(path: Path) -> list[Pod]:
    """The pods of a file. Raises LensError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise LensError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
        document = yaml.safe_load(path.read_bytes())
        return pods_of_object({"pods": []} if document is None else document)
    except OSError as error:
        raise LensError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, BadRequest, UnicodeDecodeError) as error:
        raise LensError(f"{path}: {' '.join(str(error).split())}") from None


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [DirectoryFile]

"""Which event files there are, and how far each was read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lens_core.plugin_api.following import Followed

# events.out.tfevents.SECONDS.HOST, with .PID.NUMBER by most writers, and whatever suffix somebody asked for.
_TIME = re.compile(r"tfevents\.(\d+)")
_WRITER = re.compile(r"tfevents\.\d+\.(.+?)\.(\d+)\.\d+(?:\.|$)")


class EventFile(msgspec.Struct, frozen=True):
    """An event file: its run (the folder, from the log directory), and what its name says about its writer."""

    path: str
    run: str
    root: str
    time: int
    writer: str

    @property
    def order(self) -> tuple[str, int, str]:
        """Runs one after the other, in each the file that was begun first."""
        return (self.run, self.time, self.path)


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far a file was read. `session` is its writer's, `ordinal` its place among the files of that
    session; `generation` counts how often the file was replaced."""

    inode: int
    offset: int = 0
    session: str = ""
    ordinal: int = 0
    generation: int = 0
    last_step: int | None = None
    problem: str = ""


class State(Followed, kw_only=True):
    """What must outlast a restart: progress by path."""

    files: dict[str, Progress] = msgspec.field(default_factory=dict)


def event_files(root: Path, max_files: int) -> list[EventFile]:
    """All event files below a log directory, symbolic links to folders included once; oldest of a run first."""
    found = []
    for path in _walk(root):
        time = _TIME.search(path.name)
        if time is None:
            continue
        writer = _WRITER.search(path.name)
        run = path.parent.relative_to(root).as_posix()
        by = f"{writer[1]}.{writer[2]}" if writer else ""
        found.append(EventFile(str(path), root.name if run == "." else run, root.name, int(time[1]), by))
        if len(found) >= max_files:
            break
    return sorted(found, key=lambda file: file.order)


def _walk(root: Path) -> Iterator[Path]:
    seen: set[tuple[int, int]] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        for name in sorted(names):
            if "tfevents" in name:
                yield Path(folder, name)

"""Collectors that behave badly, in a module of their own so that a child process can import them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from lens_core import Collector, ConfigurationError, LensError, Measurement, Partial, Record, Secret

_MISSING = "2 of 5 clusters gave no answer"


class OddSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings: an action, a secret to hand over, and a file for messages."""

    do: str = "answer"
    key: Secret | None = None
    file: str = ""


class Odd(Collector):
    """Does what its settings say, in the daemon."""

    name = "odd"
    Settings = OddSettings

    async def collect(self) -> Sequence[Record] | Partial:
        """One measurement, or trouble."""
        action = getattr(self, f"_{self.settings.do}")
        found: Sequence[Record] | Partial = await action()
        return found

    async def _answer(self) -> Sequence[Record]:
        key = self.settings.key.reveal() if self.settings.key else ""
        return [Measurement(name="odd.pid", value=float(os.getpid()), tags={"key": key})]

    async def _partly(self) -> Partial:
        record = Measurement(name="odd.part", value=1.0)
        return Partial(records=[record], rejected={"unreadable": 3, "none": 0}, problem=_MISSING)

    async def _nothing(self) -> Sequence[Record]:
        return []

    async def _raise(self) -> Sequence[Record]:
        raise ValueError("it broke")

    async def _refuse(self) -> Sequence[Record]:
        raise ConfigurationError("the key is missing")

    async def _fail(self) -> Sequence[Record]:
        raise LensError("the other side is gone")

    async def _exit(self) -> Sequence[Record]:
        sys.exit(3)

    async def _die(self) -> Sequence[Record]:
        os._exit(7)

    async def _print(self) -> Sequence[Record]:
        print("noise" * 1000)
        os.write(1, b"more noise\n")
        return await self._answer()

    async def _wait(self) -> Sequence[Record]:
        await asyncio.Event().wait()
        return []

    async def _hang(self) -> Sequence[Record]:
        """Block for good, with a child in the group and one in a session of its own."""
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        children = [subprocess.Popen(sleeper), subprocess.Popen(sleeper, start_new_session=True)]
        numbers = [os.getpid(), *(child.pid for child in children)]
        Path(self.settings.file).write_text(" ".join(map(str, numbers)))
        while True:
            time.sleep(1)

    async def _mixed(self) -> Sequence[Any]:
        good = Measurement(name="odd.good", value=1.0)
        unreadable: Any = Measurement(name="odd.bad", value="text")  # type: ignore[arg-type]
        unwritable: Any = Measurement(name="odd.worse", value=object())  # type: ignore[arg-type]
        return [good, unreadable, "no record", unwritable, Measurement(name="odd.nan", value=float("nan"))]

    async def _large(self) -> Sequence[Record]:
        return [Measurement(name=f"odd.{number}", value=1.0, tags={"text": "x" * 1000}) for number in range(2000)]


class Alone(Odd):
    """The same in a process of its own."""

    name = "alone"
    isolated: ClassVar[bool] = True


class Pieces(Collector):
    """Has three pieces, one a call, and counts what it was told to be stored."""

    name = "pieces"
    left = 3
    remembered = 0

    async def collect(self) -> Sequence[Record]:
        """The next piece."""
        self.left -= 1
        self.more = self.left > 0
        return [Measurement(name="piece", value=float(self.left))]

    async def stored(self) -> None:
        """Count."""
        self.remembered += 1

"""Series of targets, as scrapes bring them, and edits of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lens_core.plugin_api.protobuf import delimited
from tests.plugins.sources.remote_write.wire import series

NOW = 1_795_000_000_000
STALE = struct.unpack("<d", bytes.fromhex("020000000000f07f"))[0]


@dataclass(frozen=True)
class One:
    """A series of a target."""

    name: str
    number: int
    value: float = 1.0
    pod: str = "llama-0"
    run: str = "r1"
    histogram: bool = False
    samples: int = 1
    late: int = 0

    def at(self, step: int, target: int = 0) -> bytes:
        """Its bytes, tag and size included."""
        labels = {"__name__": self.name, "a": f"{self.number:03}", "namespace": "ml", "pod": self.pod}
        labels |= {"q": f"t{target}", "run": self.run}
        stamp = NOW + 1000 * step + target + self.late
        samples = () if self.histogram else tuple((self.value, stamp + n) for n in range(self.samples))
        more: dict[str, Any] = {"histograms": [{"count_int": 0, "timestamp": stamp}]} if self.histogram else {}
        return delimited(1, series(labels, *samples, **more).SerializeToString())


def target(count: int, first: int = 0) -> list[One]:
    """Series of one target: of several names, and of pods that are known or not."""
    names = ["up", "gpu_temperature", "node_load1", "requests_total"]
    pods = ["llama-0", "llama-1", "lonely"]
    return [One(names[n % 4], n, float(n + 1), pods[n // 7 % 3]) for n in range(first, first + count)]


def body_of(some: Sequence[One], step: int, number: int = 0) -> bytes:
    """A request with these series."""
    return b"".join(one.at(step, number) for one in some)


def edit(chance: random.Random, some: list[One]) -> None:
    """Change something that may change from one scrape to the next."""
    place = chance.randrange(len(some))
    changes: list[Callable[[], Any]] = [
        lambda: some.pop(place) if len(some) > 1 else None,
        lambda: some.insert(place, One("brand_new", 777, -1.0)),
        lambda: some.insert(place, One("up", 778, 1.0, histogram=True)),
        lambda: some.insert(place, some[place]),
        lambda: some.reverse() if chance.random() < 0.1 else None,
        lambda: chance.shuffle(some) if chance.random() < 0.1 else None,
    ]
    kinds: list[dict[str, Any]] = [
        *({"value": value} for value in (0.0, 2.5, -2.5, -0.0, STALE, float("nan"), -float("inf"))),
        *({"run": run} for run in ("r2", "é", "r" * 1200, "", "\x12\x10\x09" + "\x01" * 8 + "\x10")),
        *({"late": late} for late in (1, 2**35, 2**42, -NOW - 10**9)),
        {"pod": "llama-1"},
        {"samples": chance.choice([0, 2, 3])},
        {"name": "gpu_load", "value": -1.0},
    ]
    changes += [lambda kind=kind: some.__setitem__(place, replace(some[place], **kind)) for kind in kinds]  # type: ignore[misc]
    chance.choice(changes)()

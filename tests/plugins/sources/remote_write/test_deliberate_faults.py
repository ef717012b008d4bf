"""Whether the comparison with the generic parser would see faults: each of these is put into forward.py, and seen."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lens_plugins.sources.remote_write import forward

from lens_core import Pod
from lens_core.plugin_api.protobuf import delimited
from tests.plugins.sources.remote_write.conftest import PODS
from tests.plugins.sources.remote_write.forms import SideBySide
from tests.plugins.sources.remote_write.streams import NOW, One, body_of, edit, target
from tests.plugins.sources.remote_write.wire import request, series

SOURCE = Path(forward.__file__).read_text()
FAULTS = {
    "the guess is not compared": ("return body.startswith(self.received, start)", "return True"),
    "the guess may be of another epoch": ("or self.epoch != epoch:", ":"),
    "an entry keeps its pod for ever": ("and self._enricher.pod(stored.keys) is stored.pod", ""),
    "the labels of pods are kept for ever": (
        "self._pod_labels.clear()\n        if self._clock",
        "pass\n        if self._clock",
    ),
    "the wrong byte tells a negative value": ("body[place + 8] >= 0x80", "body[place + 7] >= 0x80"),
    "negative values are not looked for": ("sign = -1", "sign = 1"),
    "a timestamp may end in the middle": ("if body[place] < 0x80:\n                    return 0", "pass"),
    "a timestamp may have no end": (" or body[end - 1] >= 0x80", ""),
    "a series may end behind the body": ("if stop > size:", "if stop > size + 1:"),
    "a sample may end behind its series": ("if end > stop or body", "if end > stop + 1 or body"),
    "lengths are read as if they had eight bits": ("length << 7", "length << 8"),
    "empty values stay": (" or not body[value]:", ":"),
    "a value may end before its label": ("if end > stop or end != place + 2 + body[place + 1]:", "if end > stop:"),
    "text is not looked at": (" or not _is_ascii(body, start, rest):", ":"),
    "a pod's labels are put where a workload's belong": ("if index == pod_index:", "if index == workload_index:"),
    "the last label tells nothing": (
        "telling += _slice(body, telling_from, place)\n        self",
        "pass\n        self",
    ),
    "the labels of a workload are not in the length": (" + len(entry.workload_labels) + stop", " + stop"),
    "what is between the labels of a pod and of its workload is lost": (
        "self.append_bytes(data, pod_at, workload_at)",
        "pass",
    ),
    "new series go on whatever their values are": (
        "(table.watches_placed(body) if entry.negative < 0 else entry.negative)",
        "entry.negative > 0",
    ),
    "an entry has the places of labels by turns": (
        "entry.pod_at, entry.workload_at = placed.pod_at, placed.workload_at",
        "entry.pod_at, entry.workload_at = placed.pod_at, placed.pod_at",
    ),
    "all series count as unattached": ("unattached += found > 0 and entry.pod is None", "unattached += 1"),
    "samples are counted by series": ("samples += found", "samples += 1"),
    "one copy is enough": ("for labels in entry.copies:\n", "for labels in entry.copies[:1]:\n"),
}


def mutant(old: str, new: str) -> ModuleType:
    """forward.py with a fault."""
    assert SOURCE.count(old) == 1, old
    module = ModuleType("lens_plugins.sources.remote_write.mutant")
    module.__package__ = "lens_plugins.sources.remote_write"
    exec(compile(SOURCE.replace(old, new), forward.__file__, "exec"), vars(module))
    return module


def is_seen(form: Any) -> bool:
    """Whether a form makes anything else of some streams of requests than the generic parser, or fails."""
    try:
        for seed in range(4):
            _compare_streams(form, random.Random(seed), ["none", "also"][seed % 2], looks=[100, 0][seed // 2])
        for looks in (100, 0):
            _compare_damage(form, looks)
    except (AssertionError, IndexError, TypeError, OverflowError):
        return True
    return False


def _compare_streams(form: Any, chance: random.Random, copies: str, *, looks: int) -> None:
    forms, some = SideBySide(form, looks=looks, copies=copies), target(30)
    odd = [
        {"__name__": "gpu_x", "a": "", "pod": "llama-0"}, {"__name__": "gpu_x", "a": "b", "pod": "llama-0"},
        {"__name__": "up", "pod": "llama-0"}, {"__name__": "up", "namespace": "dev", "pod": "twin"},
        {"__name__": "up", "namespace": "ml", "pod": "twin"}, {"__name__": "up", "a": "xyz"},
    ]  # fmt: skip
    for step in range(8):
        if step == 5:
            forms.replace_pods([*PODS[1:], Pod(uid="u-new", name="llama-1", namespace="ml")])
        for _ in range(3 * step):
            edit(chance, some)
        more = [series({**labels, "z": str(step % 4)}, (-1.0 if step % 2 else 1.0, NOW)) for labels in odd]
        forms.forward(body_of(some, step) + request(*more, *(series(labels, (1.0, NOW)) for labels in odd)))
        # New label sets, which are made by their layouts.
        forms.forward(body_of([replace(one, run=f"s{step}") for one in some], step))
        for labels in _unusual(step):
            forms.forward(delimited(1, _label(b"__name__", b"up") + labels + delimited(2, b"\x10\x01")))


def _label(name: bytes, value: bytes) -> bytes:
    return delimited(1, delimited(1, name) + delimited(2, value))


def _unusual(step: int) -> list[bytes]:
    """Labels with the names of usual ones: an empty value, and a value that ends in the value of the next label."""
    usual = _label(b"a", b"u%d" % step) + _label(b"pod", b"lonely")
    empty = _label(b"a", b"") + _label(b"pod", b"e%d" % step)
    pod = _label(b"pod", b"llama-%d" % (step % 2))
    around = _label(b"pod", pod)
    overlapping = delimited(1, delimited(1, b"a") + bytes([0x12, 1 + len(around) - len(pod)]) + b"v") + around
    return [usual, empty, overlapping]


def _compare_damage(form: Any, looks: int) -> None:
    some = [*target(2), One("up", 3, samples=2), One("up", 4, run="r" * 150)]
    forms, chance = SideBySide(form, looks=looks), random.Random(1)
    for step in range(3):
        forms.forward(body_of(some, step))
    body = body_of(some, 5)
    for size in range(len(body)):
        forms.forward(body[:size])
    for _ in range(1500):
        place = chance.randrange(len(body))
        # New label sets too, so that what their layout says is tried.
        text = body.replace(b"t0", b"t%d" % chance.randrange(9))
        forms.forward(text[:place] + bytes([chance.choice([text[place] ^ 1, 0x80, 0xFF, 0x0A])]) + text[place + 1 :])


def test_nothing_is_seen_without_a_fault() -> None:
    assert not is_seen(forward)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str) -> None:
    assert is_seen(mutant(*FAULTS[fault]))

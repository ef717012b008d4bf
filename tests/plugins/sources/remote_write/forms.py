"""Both forms of the hot path side by side, and what they must equal: every series read by the generic parser alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lens_plugins.sources.remote_write import forward
from lens_plugins.sources.remote_write.drops import Drops, RemoteWriteMetrics
from lens_plugins.sources.remote_write.enriching import Enricher
from lens_plugins.sources.remote_write.generic_parser import ForwardedBatch, GenericParser
from lens_plugins.sources.remote_write.request import split_request
from lens_plugins.sources.remote_write.settings import RemoteWriteSettings
from lens_plugins.sources.remote_write.version2 import as_version1

from lens_core import Pod
from lens_core.base.errors import BadRequest
from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from lens_core.plugin_api.protobuf import WireError, delimited
from tests.plugins.sources.remote_write.conftest import PODS
from tests.side_by_side import made_once

CHECKOUT = Path(__file__).parents[4]
_METRICS = SelfMetrics()
interpreted = forward
# The compiled form that is tested; without it one is built from this checkout.
COMPILED = "LENS_TEST_COMPILED_FORM"


def compiled() -> ModuleType:
    """The compiled form of this checkout's forward.py."""
    name = "lens_plugins.sources.remote_write._forward"
    path = os.environ.get(COMPILED) or str(next(made_once("compiled_form", _build).rglob("_forward*.so"), ""))
    if not path:
        pytest.skip("there is no C compiler here, or no Cython")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(folder: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder), "--build-temp", str(folder)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


class Forwarder:
    """Forwards requests by one form, one after the other, with a directory of its own."""

    def __init__(self, form: Any = interpreted, *, looks: int = 8, **settings: Any) -> None:
        self.clock = 0.0
        self.directory = Directory()
        self.directory.replace(PODS, "test")
        self._form = form
        chosen = RemoteWriteSettings(**settings)
        enricher = Enricher(chosen, self.directory, form)
        self.table = form.LabelSets(enricher, chosen.cached_series, 600.0, lambda: self.clock)
        # How many new label sets are looked up in the table before most are forwarded without an entry.
        self.table.looks = looks
        self._parser = GenericParser(enricher, Drops(10, _METRICS.group(RemoteWriteMetrics)))

    def forward(self, body: bytes, portion: int = 100) -> ForwardedBatch:
        """Return the outcome of a request of 1.0, forwarded in portions."""
        batch = ForwardedBatch(self._form.Output())
        place = self._forward(body, portion, batch)
        if place < len(body):
            self._forward(as_version1(split_request(body[place:], "1.0").series, None), portion, batch)
        return batch

    def _forward(self, body: bytes, portion: int, batch: ForwardedBatch) -> int:
        place, before = 0, -1
        while before < place < len(body):
            self.table.begin()
            before = place
            place = self._form.forward(body, place, portion, self.table, self._parser, batch)
        return place


class Reader(Forwarder):
    """Forwards requests without the hot path: every series by the generic parser."""

    def forward(self, body: bytes, portion: int = 100) -> ForwardedBatch:
        """Return the outcome of a request of 1.0."""
        batch = ForwardedBatch(self._form.Output())
        series = split_request(body, "1.0").series
        self.table.begin()
        for one in series:
            self._parser.parse(one, None, batch)
        batch.received = len(series)
        return batch


class SideBySide:
    """One or both forms beside the generic parser: the same requests must become the same bytes and counts."""

    def __init__(self, *forms: Any, **settings: Any) -> None:
        self.forwarders = [Forwarder(form, **settings) for form in forms]
        self._all = [*self.forwarders, Reader(interpreted, **settings)]

    def replace_pods(self, pods: list[Pod]) -> None:
        """Let all directories know these pods."""
        for one in self._all:
            one.directory.replace(pods, "test")

    def pass_time(self, seconds: float) -> None:
        """Move all clocks."""
        for one in self._all:
            one.clock += seconds

    def forward(self, body: bytes, portion: int = 100) -> bytes:
        """Return the forwarded part of a request; nothing for one that is refused."""
        outcomes = [outcome(lambda one=one: one.forward(body, portion)) for one in self._all]  # type: ignore[misc]
        # By itself: to explain where so many bytes differ would take minutes.
        same = all(found == outcomes[-1] for found in outcomes)
        assert same
        return outcomes[0][0] if isinstance(outcomes[0][0], bytes) else b""


def outcome(forward: Callable[[], ForwardedBatch]) -> tuple[Any, ...]:
    """The forwarded bytes and the counts; or the refusal of the request, for its first damage."""
    try:
        batch = forward()
    except (WireError, BadRequest):
        return (None,)
    counts = (batch.received, batch.series, batch.samples, batch.histograms, batch.exemplars)
    return bytes(batch.view()), *counts, batch.unattached, batch.dropped, batch.refused, sorted(batch.messages)


def as_body(series: Iterable[bytes]) -> bytes:
    """A request of these series."""
    return b"".join(delimited(1, one) for one in series)

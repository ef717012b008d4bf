"""Runs of an Aim repository, read by the package `aim` in a process of its own: Lens' Python need not have it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from lens_core import SHOWN_NAME_LABEL, Event, Evidence, LensError, Origin, Record, StepMetrics

_READER = Path(__file__).with_name("aim_reader.py")
_DATA_SOURCE = "aim"
_MICROSECONDS = 1_000_000


def read_aim(where: str, python: str = "") -> Iterator[Record]:
    """The records of all runs of a repository, one run after the other. Raises LensError.

    `where` is the folder with `.aim` in it, or that folder itself; `python` an interpreter that has `aim`.
    """
    folder = Path(where).absolute()
    folder = folder.parent if folder.name == ".aim" else folder
    if not (folder / ".aim").is_dir():
        raise LensError(f"{where} is no repository of Aim: it has no folder .aim")
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [python or sys.executable, str(_READER), str(folder)], stdout=subprocess.PIPE, stderr=errors
        )
        try:
            assert process.stdout is not None
            yield from records_of_lines(json.loads(line) for line in process.stdout)
            if process.wait():
                errors.seek(0)
                raise LensError(_reason_of(where, errors.read().decode("utf-8", "replace")))
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _reason_of(where: str, printed: str) -> str:
    if "No module named 'aim'" in printed:
        return (
            'this needs the package aim: pip install "lens-agent[aim]" (Python 3.12 at most), or name an interpreter '
            "that has it, such as that of the training, with --python"
        )
    last = printed.strip().splitlines()[-1:] or ["it said nothing"]
    return f"{where} cannot be read: {last[0][:500]}"


def records_of_lines(lines: Iterator[Any]) -> Iterator[Record]:
    """The records of what the reader prints; nothing of a run without rows."""
    described: dict[str, Any] = {}
    for has_rows, part in groupby(lines, lambda line: not isinstance(line, dict)):
        if not has_rows:
            described = list(part)[-1]
            continue
        name = described["name"]
        origin = Origin(workload_uid=described["run"], labels={SHOWN_NAME_LABEL: name} if name else {})
        yield _start_or_end(described, origin, "training_started", described["started"])
        yield _evidence(described, origin)
        yield from _rows(described["run"], origin, part)
        if described["ended"]:
            yield _start_or_end(described, origin, "training_ended", described["ended"])


def _rows(run_id: str, origin: Origin, lines: Iterator[Any]) -> Iterator[StepMetrics]:
    for step, seconds, values in lines:
        yield StepMetrics(
            origin=origin,
            data_source=_DATA_SOURCE,
            echo_of=_DATA_SOURCE,
            run_id=run_id,
            session=run_id,
            row_step=step,
            event_time=seconds or None,
            sequence=round(seconds * _MICROSECONDS),
            values=values,
        )


def _evidence(described: Mapping[str, Any], origin: Origin) -> Evidence:
    """The facts of a run in the shape of the hook's."""
    told = {name: described[name] for name in ("name", "experiment", "tags", "note", "commit") if described[name]}
    facts: dict[str, Any] = {"tracker": {"tracker": _DATA_SOURCE, "id": described["run"], **told}}
    if described["config"]:
        facts["config"] = described["config"]
    if described["experiment"]:
        facts["project"] = described["experiment"]
    return Evidence(
        origin=origin,
        source=_DATA_SOURCE,
        facts=facts,
        run_id=described["run"],
        session=described["run"],
        event_time=described["started"] or None,
    )


def _start_or_end(described: Mapping[str, Any], origin: Origin, kind: str, seconds: float) -> Event:
    return Event(
        origin=origin,
        type=kind,
        run_id=described["run"],
        session=described["run"],
        event_time=seconds or None,
        data_source=_DATA_SOURCE,
    )

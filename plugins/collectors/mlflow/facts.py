"""The description of a run → evidence of its workload, and events of its start and end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from lens_core import SHOWN_NAME_LABEL, Event, Evidence, Origin

from .api import Run
from .rows import DATA_SOURCE
from .settings import WORKLOAD_TAG, MlflowSettings

ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
# As the hook reports the end of a run.
_EXIT_CODES = {"FAILED": 1, "KILLED": 137}
_OWN_TAGS = "mlflow."
_LAST_MS = 253_402_300_799_000


def origin_of(run: Run, experiment: str, *, workload: str = "{run_id}", workload_tag: str = WORKLOAD_TAG) -> Origin:
    """The workload of a run: a tag of it says which, else the template `workload`."""
    info, tags = run.info, _pairs(run.data.tags)
    tagged = tags.get(workload_tag, "") if workload_tag else ""
    if tagged:
        return Origin(workload_uid=tagged)
    known = {
        "{run_id}": info.run_id,
        "{run_name}": name_of(run) or info.run_id,
        "{experiment}": experiment or info.experiment_id,
        "{experiment_id}": info.experiment_id,
    }
    for place, text in known.items():
        workload = workload.replace(place, text)
    return Origin(workload_uid=workload, labels={SHOWN_NAME_LABEL: name} if (name := name_of(run)) else {})


def name_of(run: Run) -> str:
    """The name of a run, which old servers have as a tag only."""
    return run.info.run_name or _pairs(run.data.tags).get("mlflow.runName", "")


def evidence_of(run: Run, experiment: str, origin: Origin, url: str = "") -> Evidence:
    """The facts of a run in the shape of the hook's, `url` its page; secrets in them are hidden on the way."""
    info, tags = run.info, _pairs(run.data.tags)
    told = {
        "tracker": DATA_SOURCE,
        "id": info.run_id,
        "name": name_of(run),
        "experiment": experiment or info.experiment_id,
        "tags": {key: text for key, text in tags.items() if not key.startswith(_OWN_TAGS)},
        "parent": tags.get("mlflow.parentRunId", ""),
        "url": url,
        "user": info.user_id or tags.get("mlflow.user", ""),
        "script": tags.get("mlflow.source.name", ""),
        "commit": tags.get("mlflow.source.git.commit", ""),
        "note": tags.get("mlflow.note.content", ""),
    }
    facts: dict[str, Any] = {"tracker": {key: value for key, value in told.items() if value}}
    if run.data.params:
        facts["config"] = _pairs(run.data.params)
    if experiment:
        facts["project"] = experiment
    return Evidence(
        origin=origin,
        source=DATA_SOURCE,
        facts=facts,
        run_id=info.run_id,
        session=info.run_id,
        event_time=seconds_of(info.start_time),
    )


def page_of(run: Run, settings: MlflowSettings) -> str:
    """The address of a run's page on the server."""
    base = (settings.page_url or settings.base_url).rstrip("/")
    return f"{base}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"


def start_of(run: Run, origin: Origin, kind: str = "training_started") -> Event:
    """The start of a run, or that it goes on."""
    return _event(run, origin, kind, run.info.start_time, {})


def end_of(run: Run, origin: Origin) -> Event:
    """The end of a run by its status."""
    code = _EXIT_CODES.get(run.info.status)
    details: dict[str, Any] = {"status": run.info.status, **({} if code is None else {"exit_code": code})}
    return _event(run, origin, "training_failed" if code else "training_ended", run.info.end_time, details)


def _event(run: Run, origin: Origin, kind: str, at_ms: int | None, details: Mapping[str, Any]) -> Event:
    return Event(
        origin=origin,
        type=kind,
        run_id=run.info.run_id,
        session=run.info.run_id,
        event_time=seconds_of(at_ms),
        data_source=DATA_SOURCE,
        details=dict(details),
    )


def seconds_of(at_ms: int | None) -> float | None:
    """A time of MLflow in seconds; None for none."""
    return at_ms / 1000 if at_ms is not None and 0 < at_ms <= _LAST_MS else None


def digest_of(value: Any) -> str:
    """A short text that changes with what it was made of."""
    return hashlib.blake2b(msgspec.msgpack.encode(value), digest_size=8).hexdigest()


def _pairs(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}

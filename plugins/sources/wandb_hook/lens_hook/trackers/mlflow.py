"""MLflow 2 and 3: the client of the tracking service, in which the fluent API, autologging and every logger end.

Databricks, Azure ML and SageMaker are stores below it. A metric without a step arrives with step 0; where one key comes
twice that way, its values are counted instead. MLflow's own system metrics are no training rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from .. import say, tracking
from ..session import Session

_SYSTEM = "system/"
_MOST_RUNS = 1000
_MOST_KEYS = 20_000
_FAILED = {"FAILED": 1, "KILLED": 137}
_experiments: dict[str, str] = {}  # names by id, as far as they passed by


class _Run:
    """A run of MLflow as far as this process knows it."""

    def __init__(self, run_id: str, client: Any) -> None:
        self.run_id = run_id
        self.address = str(getattr(client, "tracking_uri", None) or "")
        self.name = ""
        self.experiment_id = ""
        self.config: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.counter = tracking.KeyCounter()
        self.stepped: set[str] = set()  # keys that have come with a step
        self.session: Session | None = None

    def describe(self) -> dict[str, Any]:
        """Answer what is known without a question to the server."""
        tags = dict(self.tags)
        url = ""
        if self.address.startswith(("http://", "https://")) and self.experiment_id:
            url = f"{self.address.rstrip('/')}/#/experiments/{self.experiment_id}/runs/{self.run_id}"
        return {
            "id": self.run_id,
            "name": self.name or tags.get("mlflow.runName"),
            "experiment": _experiments.get(self.experiment_id) or self.experiment_id,
            "tags": {name: text for name, text in tags.items() if not name.startswith("mlflow.")},
            "parent": tags.get("mlflow.parentRunId"),
            "url": url,
            "config": dict(self.config),
        }

    def log_values(self, values: dict[str, Any], step: Any, time_ms: Any) -> None:
        """Log a row without MLflow's own system metrics."""
        if next(iter(values)).startswith(_SYSTEM):  # they come in batches of their own
            return
        if self.session is None:
            self.session = tracking.open_run("mlflow", self.run_id, self.describe)
        step = int(step or 0)
        if step:
            if len(self.stepped) < _MOST_KEYS:
                self.stepped.update(values)
        elif self.stepped.isdisjoint(values):
            step = self.counter.next_step(*values)
        tracking.log_row(self.session, values, step, time_ms / 1000 if time_ms else None)

    def describe_again(self) -> None:
        """Have the changed description sent."""
        if self.session is not None:
            self.session.evidence_due = True


_runs: OrderedDict[str, _Run] = OrderedDict()


def _run_of(client: Any, run_id: Any) -> _Run:
    key = str(run_id)
    run = _runs.get(key)
    if run is None:
        run = _runs[key] = _Run(key, client)
        while len(_runs) > _MOST_RUNS:
            _runs.popitem(last=False)
    return run


def patch_mlflow(module: Any) -> None:
    """Patch the class `TrackingServiceClient`."""
    client = module.TrackingServiceClient
    tracking.wrap(client, "log_metric", _single_metric)
    tracking.wrap(client, "log_batch", _batch)
    tracking.follow(client, "create_run", _note_run)
    tracking.follow(client, "log_param", _note_param)
    tracking.follow(client, "set_tag", _note_tag)
    tracking.follow(client, "set_terminated", _note_end)
    tracking.follow(client, "create_experiment", _note_new_experiment)
    for name in ("get_experiment", "get_experiment_by_name"):
        tracking.follow(client, name, _note_experiment)


def _single_metric(original: Callable[..., Any]) -> Callable[..., Any]:
    def log_metric(
        self: Any,
        run_id: Any,
        key: Any,
        value: Any,
        timestamp: Any = None,
        step: Any = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        result = original(self, run_id, key, value, timestamp, step, *more, **options)
        try:
            if tracking.is_on():
                _run_of(self, run_id).log_values({str(key): value}, step, timestamp)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return log_metric


def _batch(original: Callable[..., Any]) -> Callable[..., Any]:
    def log_batch(
        self: Any, run_id: Any, metrics: Any = (), params: Any = (), tags: Any = (), *more: Any, **options: Any
    ) -> Any:
        metrics = _as_sequence(metrics)
        result = original(self, run_id, metrics, params, tags, *more, **options)
        try:
            if tracking.is_on():
                _log_batch(_run_of(self, run_id), metrics, params, tags)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return log_batch


def _as_sequence(metrics: Any) -> Any:
    """The same metrics, so that they can be gone through twice."""
    return metrics if isinstance(metrics, (list, tuple)) or metrics is None else list(metrics)


def _log_batch(run: _Run, metrics: Any, params: Any, tags: Any) -> None:
    rows: dict[tuple[Any, Any], dict[str, Any]] = {}
    row: dict[str, Any] = {}
    latest_step: Any = None
    latest_ms: Any = None
    for metric in metrics or ():
        try:
            known = metric.__dict__  # its properties take several times as long
            step, time_ms, key, value = known["_step"], known["_timestamp"], known["_key"], known["_value"]
        except (AttributeError, KeyError):
            step, time_ms, key, value = metric.step, metric.timestamp, metric.key, metric.value
        if not rows or step != latest_step or time_ms != latest_ms:
            latest_step, latest_ms = step, time_ms
            row = rows.setdefault((step, time_ms), {})
        row[key] = value
    for (step, time_ms), row in rows.items():
        run.log_values(row, step, time_ms)
    if params or tags:
        run.config.update({str(param.key): param.value for param in params or ()})
        run.tags.update({str(tag.key): tag.value for tag in tags or ()})
        run.describe_again()


def _note_run(
    result: Any, self: Any, experiment_id: Any = None, start_time: Any = None, tags: Any = None, *_: Any, **__: Any
) -> None:
    run = _run_of(self, result.info.run_id)
    run.experiment_id = str(experiment_id if experiment_id is not None else result.info.experiment_id)
    run.name = str(getattr(result.info, "run_name", None) or "")
    if isinstance(tags, Mapping):
        run.tags.update({str(name): str(text) for name, text in tags.items()})


def _note_param(_result: Any, self: Any, run_id: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
    run = _run_of(self, run_id)
    run.config[str(key)] = str(value)
    run.describe_again()


def _note_tag(_result: Any, self: Any, run_id: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
    run = _run_of(self, run_id)
    run.tags[str(key)] = str(value)
    run.describe_again()


def _note_end(_result: Any, self: Any, run_id: Any, status: Any = None, *_: Any, **__: Any) -> None:
    run = _runs.get(str(run_id))
    if run is None or run.session is None:
        return
    name = str(status or "FINISHED").rpartition(".")[2]
    code = _FAILED.get(name)
    tracking.close_run(run.session, {"exit_code": code} if code else None)
    say.debug(f"MLflow's run {run.run_id} is {name}")
    run.session = None  # what is logged into it later is a resumed run


def _note_new_experiment(result: Any, self: Any, name: Any, *_: Any, **__: Any) -> None:
    _experiments[str(result)] = str(name)


def _note_experiment(result: Any, *_: Any, **__: Any) -> None:
    if result is not None and len(_experiments) < _MOST_RUNS:
        _experiments[str(result.experiment_id)] = str(result.name)

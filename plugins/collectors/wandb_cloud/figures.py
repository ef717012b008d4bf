"""Makes the twenty metrics of a project."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lens_core import Measurement, Secret

DEFAULT_BASE_URL = "https://api.wandb.ai"

SPS_KEYS = (
    "overview/steps_per_second",
    "overview/epoch_steps_per_second",
    "overview/sps",
    "timing_cumulative/sps",
    "timing_per_epoch/sps",
)

_Positive = Annotated[float, Meta(gt=0)]


class WandbCloudSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the wandb_cloud collector.

    `entity`, `project`: whose runs; WANDB_ENTITY and WANDB_PROJECT when left out. `api_key`: WANDB_API_KEY when left
    out, else it comes from AWS. `aws_secret`: a secret of AWS (one JSON object with WANDB_API_KEY, WANDB_ENTITY and
    WANDB_PROJECT, or the key as plain text). `aws_region`: where that secret is. `base_url`: a W&B server of your own;
    WANDB_BASE_URL when left out.

    `window_hours`: what counts as recent. `main_prefixes`: names that begin like this are the push_to_main group;
    `sweep_marks`: names that contain one of these (in any case) are sweeps, as are runs of a sweep. `sps_keys`: the
    keys of the summary that become `wandb.push_to_main.KEY`, a slash as a dot. `gpus_per_run`: for runs whose GPU
    count W&B does not know; `gpus_config_key`: a key of the run's configuration that holds it (`trainer.gpus`).

    `page_size`: runs per request. `request_timeout_seconds`: for one request. `tags`: on every metric.
    `history_runs`: name patterns (* and ?) of runs whose history is fetched as rows too; `history_keys`: only these
    metrics; `history_page_size`: steps per request; `history_runs_at_once`: so many runs a time.
    """

    entity: str = ""
    project: str = ""
    api_key: Secret | None = None
    aws_secret: str = ""
    aws_region: str = ""
    base_url: str = ""
    window_hours: _Positive = 24.0
    main_prefixes: list[str] = msgspec.field(default_factory=lambda: ["github.sky."])
    sweep_marks: list[str] = msgspec.field(default_factory=lambda: [".sweep"])
    sps_keys: list[str] = msgspec.field(default_factory=lambda: list(SPS_KEYS))
    gpus_per_run: Annotated[float, Meta(ge=0)] = 1.0
    gpus_config_key: str = ""
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 500
    request_timeout_seconds: Annotated[int, Meta(ge=1)] = 30
    tags: dict[str, str] = {}
    history_runs: list[str] = []
    history_keys: list[str] = []
    history_page_size: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    history_runs_at_once: Annotated[int, Meta(ge=1)] = 20


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Access to the server: address, entity, projects and key; complete."""

    api_key: Secret
    entity: str
    project: str
    base_url: str

    @property
    def path(self) -> str:
        """The project as W&B writes it."""
        return f"{self.entity}/{self.project}"


_FRACTION = re.compile(r"\.(\d+)")
# The depth to which a multiply encoded object is unpacked; W&B's clients and servers encode once or twice.
_MAX_DECODINGS = 2


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run; times in seconds since the epoch, None when W&B does not say. `gpus` None: unknown."""

    id: str
    name: str
    state: str
    created: float | None
    heartbeat: float | None
    in_sweep: bool
    gpus: float | None
    summary: Any = None


def read_run(node: Mapping[str, Any], gpus_config_key: str = "") -> RunFacts:
    """A node of the listing. A run without a display name goes by its id."""
    run_id = str(node.get("name") or "")
    return RunFacts(
        id=run_id,
        name=str(node.get("displayName") or run_id),
        state=str(node.get("state") or "").lower(),
        created=read_time(node.get("createdAt")),
        heartbeat=read_time(node.get("heartbeatAt")),
        in_sweep=bool(node.get("sweepName")),
        gpus=_gpus(node, gpus_config_key),
        summary=node.get("summaryMetrics"),
    )


def read_time(text: Any) -> float | None:
    """An ISO time in seconds since the epoch, UTC where it names no zone; None when it is none."""
    if not isinstance(text, str) or not text:
        return None
    # Python 3.10 reads fractions of three or six digits only, and no Z.
    plain = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), text.strip()).replace("Z", "+00:00")
    try:
        time = datetime.fromisoformat(plain)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()


def read_object(value: Any) -> Mapping[str, Any]:
    """A summary or a configuration: an object, JSON text (even twice encoded), nothing, or broken: then empty."""
    for _ in range(_MAX_DECODINGS):
        if not isinstance(value, (str, bytes, bytearray)):
            break
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def read_number(value: Any) -> float | None:
    """A finite number, else None: booleans, texts ("NaN" among them) and objects are no values of a gauge."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _gpus(node: Mapping[str, Any], config_key: str) -> float | None:
    config = read_object(node.get("config"))
    if config_key:
        number = read_number(_setting(config, config_key))
        if number is not None and number >= 0:
            return number
    return _gpus_of_metadata(config)


def _setting(config: Mapping[str, Any], key: str) -> Any:
    """A key of a run's configuration, nested ones with dots; W&B wraps the first level as {"value": …}."""
    if key in config:
        return _unwrapped(config[key])
    first, *rest = key.split(".")
    value = _unwrapped(config.get(first))
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _unwrapped(value: Any) -> Any:
    return value["value"] if isinstance(value, Mapping) and "value" in value else value


def _gpus_of_metadata(config: Mapping[str, Any]) -> float | None:
    """The GPUs of the machines that wrote the run: `_wandb.e`, one entry per process that did, one count per host."""
    internal = _unwrapped(config.get("_wandb"))
    writers = internal.get("e") if isinstance(internal, Mapping) else None
    if not isinstance(writers, Mapping):
        return None
    per_host: dict[str, float] = {}
    for writer in writers.values():
        if not isinstance(writer, Mapping):
            continue
        number = read_number(writer.get("gpu_count"))
        if number:
            host = str(writer.get("host") or "")
            per_host[host] = max(per_host.get(host, 0.0), number)
    return sum(per_host.values()) if per_host else None


_FAILED = ("failed", "crashed")
_WITH_SUMMARY = ("finished", "crashed")
_HOUR = 3600.0


class Group:
    """Counts and durations of some of the runs."""

    def __init__(self) -> None:
        self.total = self.active = self.completed = self.failed = 0
        self._hours = 0.0
        self._with_hours = 0

    def count_run(self, run: RunFacts) -> None:
        """Count a run."""
        self.total += 1
        self.active += run.state == "running"
        self.completed += run.state == "finished"
        self.failed += run.state in _FAILED
        if run.created is not None and run.heartbeat is not None:
            self._hours += max(0.0, run.heartbeat - run.created) / _HOUR
            self._with_hours += 1

    @property
    def success_rate_pct(self) -> float | None:
        """Of those that ended as completed or failed; None when none did."""
        ended = self.completed + self.failed
        return 100.0 * self.completed / ended if ended else None

    @property
    def avg_duration_hours(self) -> float | None:
        """The mean of heartbeat − creation over all runs that have both; None when none has."""
        return self._hours / self._with_hours if self._with_hours else None


class Figures:
    """Takes runs one by one; `measurements` gives what they amount to.

    The window holds every run that is running and every other one whose last heartbeat is inside it. Groups by name:
    push_to_main first, then sweep, else neither.
    """

    def __init__(self, settings: WandbCloudSettings, now: float) -> None:
        self._settings = settings
        self._now = now
        self._begins = now - settings.window_hours * _HOUR
        self._seen: set[str] = set()
        self._all, self._main, self._sweep = Group(), Group(), Group()
        self._gpu_hours = 0.0
        # Per key of the summary: the newest heartbeat (and id, so that ties are settled) with its value.
        self._newest: dict[str, tuple[float, str, float]] = {}

    def count_run(self, run: RunFacts) -> None:
        """Count a run, once, if it is inside the window."""
        if run.id in self._seen or not self._is_inside(run):
            return
        self._seen.add(run.id)
        self._all.count_run(run)
        self._gpu_hours += self._gpu_hours_of(run)
        if run.name.startswith(tuple(self._settings.main_prefixes)):
            self._main.count_run(run)
            self._append_speeds(run)
        elif run.in_sweep or any(mark.lower() in run.name.lower() for mark in self._settings.sweep_marks):
            self._sweep.count_run(run)

    def values(self) -> dict[str, float | None]:
        """The metrics by name; None is "no data"."""
        everything, main, sweep = self._all, self._main, self._sweep
        return {
            "wandb.runs.active": everything.active,
            "wandb.runs.completed_24h": everything.completed,
            "wandb.runs.failed_24h": everything.failed,
            "wandb.runs.total_recent": everything.total,
            "wandb.training.avg_duration_hours": everything.avg_duration_hours,
            "wandb.training.total_gpu_hours_24h": self._gpu_hours,
            "wandb.push_to_main.runs_completed_24h": main.completed,
            "wandb.push_to_main.runs_failed_24h": main.failed,
            "wandb.push_to_main.success_rate_pct": main.success_rate_pct,
            "wandb.push_to_main.avg_duration_hours": main.avg_duration_hours,
            **{speed_name(key): self._speed(key) for key in self._settings.sps_keys},
            "wandb.sweep.runs_total_24h": sweep.total,
            "wandb.sweep.runs_completed_24h": sweep.completed,
            "wandb.sweep.runs_failed_24h": sweep.failed,
            "wandb.sweep.runs_active": sweep.active,
            "wandb.sweep.success_rate_pct": sweep.success_rate_pct,
        }

    def measurements(self, units: Mapping[str, str], tags: Mapping[str, str]) -> list[Measurement]:
        """The metrics as gauges at the time of the run; `units` by name. The settings' tags win over `tags`."""
        together = {**tags, **self._settings.tags}
        return [
            Measurement(
                name=name,
                value=None if value is None else float(value),
                unit=units.get(name, ""),
                event_time=self._now,
                tags=together,
            )
            for name, value in self.values().items()
        ]

    def _is_inside(self, run: RunFacts) -> bool:
        return run.state == "running" or (run.heartbeat is not None and run.heartbeat >= self._begins)

    def _gpu_hours_of(self, run: RunFacts) -> float:
        """The part of creation → heartbeat (now, if running) inside the window, times the GPUs."""
        ends = self._now if run.state == "running" else run.heartbeat
        if run.created is None or ends is None:
            return 0.0
        gpus = self._settings.gpus_per_run if run.gpus is None else run.gpus
        return max(0.0, min(ends, self._now) - max(run.created, self._begins)) / _HOUR * gpus

    def _append_speeds(self, run: RunFacts) -> None:
        if run.state not in _WITH_SUMMARY or run.heartbeat is None:
            return
        summary = read_object(run.summary)
        for key in self._settings.sps_keys:
            value = read_number(summary.get(key))
            newest = self._newest.get(key)
            if value is not None and (newest is None or (run.heartbeat, run.id) > newest[:2]):
                self._newest[key] = (run.heartbeat, run.id, value)

    def _speed(self, key: str) -> float | None:
        newest = self._newest.get(key)
        return newest[2] if newest else None


def speed_name(key: str) -> str:
    """The metric of a key of the summary: `overview/sps` is `wandb.push_to_main.overview.sps`."""
    return "wandb.push_to_main." + key.replace("/", ".")

"""The twenty metrics, computed run by run in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping

from lens_core import Measurement

from .facts import RunFacts, read_number, read_object
from .settings import WandbCloudSettings

_FAILED = ("failed", "crashed")
_WITH_SUMMARY = ("finished", "crashed")
_HOUR = 3600.0


class Group:
    """Counts and durations of some of the runs."""

    def __init__(self) -> None:
        self.total = self.active = self.completed = self.failed = 0
        self._hours = 0.0
        self._with_hours = 0

    def add(self, run: RunFacts) -> None:
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

    def add(self, run: RunFacts) -> None:
        """Count a run, once, if it is inside the window."""
        if run.id in self._seen or not self._is_inside(run):
            return
        self._seen.add(run.id)
        self._all.add(run)
        self._gpu_hours += self._gpu_hours_of(run)
        if run.name.startswith(tuple(self._settings.main_prefixes)):
            self._main.add(run)
            self._take_speeds(run)
        elif run.in_sweep or any(mark.lower() in run.name.lower() for mark in self._settings.sweep_marks):
            self._sweep.add(run)

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

    def _take_speeds(self, run: RunFacts) -> None:
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

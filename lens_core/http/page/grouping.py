"""By what the list of workloads is grouped beyond its own columns: the project and the settings of each workload."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...base.errors import BadRequest
from ...plugin_api.store import Store, config_in
from ..run_table import merge_flat

GROUPS = ("namespace", "state", "project", "config.NAME")
# Settings change with a new run; what is known of a workload holds for so long.
_KEPT_SECONDS = 60.0
_MOST_KEPT = 5000
_AT_ONCE = 50
# A setting of which every workload has another value makes no groups.
_MOST_VALUES = 30
_MOST_CHOICES = 100


class Settings(NamedTuple):
    """The project and the configuration of the newest run of a workload; `config` is flat."""

    project: str | None
    config: Mapping[str, Any]

    def value(self, group: str) -> Any:
        """The value of `project` or `config.NAME`; None without one."""
        return self.project if group == "project" else self.config.get(group.partition(".")[2])


def read_group(text: str) -> str:
    """Read the parameter `group`. Raises BadRequest."""
    name, _, key = text.partition(".")
    if text in ("", *GROUPS[:3]) or (name == "config" and key):
        return text
    raise BadRequest(f"group must be one of {', '.join(GROUPS)}, not {text[:80]!r}")


class SettingsCache:
    """Reads projects and settings out of the evidence of workloads, and keeps them for a while."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Settings]] = OrderedDict()

    async def settings_of(self, store: Store, uids: Sequence[str]) -> dict[str, Settings]:
        """The settings of each workload."""
        now = time.monotonic()
        stale = [uid for uid in uids if uid not in self._kept or now - self._kept[uid][0] > _KEPT_SECONDS]
        found = {uid: self._kept[uid][1] for uid in set(uids).difference(stale)}
        for first in range(0, len(stale), _AT_ONCE):
            for uid, evidence in (await store.evidence_of(stale[first : first + _AT_ONCE])).items():
                found[uid] = settings_told(evidence)
                self._kept[uid] = now, found[uid]
                self._kept.move_to_end(uid)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return found


def settings_told(evidence: Sequence[Mapping[str, Any]]) -> Settings:
    """The newest project and the newest configuration; evidence newest first."""
    project: str | None = None
    config: dict[str, Any] = {}
    for item in evidence:
        facts = item.get("facts") or {}
        wandb = facts.get("wandb")
        told = wandb if isinstance(wandb, Mapping) else {}
        named = told.get("project") or facts.get("project")  # wandb's, else the experiment of another tracker
        if project is None and isinstance(named, str) and named:
            project = named
        if not config:
            merge_flat(config_in(facts), "", config)
    return Settings(project, config)


def choices_of(settings: Iterable[Settings]) -> list[str]:
    """By what workloads can be grouped: `project`, and the settings in which they differ, but not all of them."""
    values: dict[str, set[bytes]] = {}
    counts: Counter[str] = Counter()
    for one in settings:
        told = {f"config.{name}": value for name, value in one.config.items()}
        for name, value in {**({"project": one.project} if one.project else {}), **told}.items():
            counts[name] += 1
            known = values.setdefault(name, set())
            if len(known) <= _MOST_VALUES:
                known.add(msgspec.json.encode(value))
    found = [
        name
        for name, known in values.items()
        if name == "project" or 1 < len(known) <= min(_MOST_VALUES, counts[name] - 1)
    ]
    return sorted(found, key=lambda name: (name != "project", -counts[name], name))[:_MOST_CHOICES]

"""Copies: values that came by a second way, out of logs, event files or a tracker's server, beside those of the job.

Of one run that the job has logged and a collector has read, the longer one is answered with. Otherwise each quantity is
compared (`loss`, `train/loss` and a log's `lm_loss` are one): among the sources that have about as many points of it at
the same time as the longest, the job's tracker goes first, then a collected one, the framework, OTLP, the log. What
only one of them has stays, and so does what two trackers of the job were told.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lens_core.plugin_api.store import SourceChoice, metric_name
from lens_core.plugin_api.vocabulary import VOCABULARY

from .echoes import NOTHING, OUTSIDE, LeftOut, is_about_as_long, preference_of
from .grouping import LOG_SOURCE

_FRAMEWORKS = frozenset(["transformers", "lightning", "accelerate", "keras", "ray", "torchtitan"])
# Lines without a time have that of their reading, which may be a while after the job.
_LATE_US = 600_000_000
# Numbers of a log that say where its row is, not what was measured.
_POSITIONS = frozenset(
    ["current_iteration", "target_iteration", "epoch", "total_epochs", "step_in_epoch", "steps_per_epoch"]
)
_PLAIN_WORDS = frozenset(["train", "training", "lm", "megatron", "metrics"])
_EVALUATIONS = frozenset(["eval", "evaluation", "val", "valid", "validation"])
# Beside the words that logs print for the same things.
_SYNONYMS = {
    "gradnorm": "grad_norm",
    "loss_global_avg_loss": "loss",
    "global_avg_loss": "loss",
    "loss_step": "loss",
    "global_step": "current_iteration",
    "iteration": "current_iteration",
}
_SEPARATORS = re.compile(r"[^\w]+|_+")


class Candidate(NamedTuple):
    """A stream with the number of points of each of its metrics; `group` is the workload that was asked for."""

    id: int
    group: str
    data_source: str
    echo_of: str
    run_id: str
    rank: int
    first_us: int
    last_us: int
    last_iteration: int
    rows: int
    points: Mapping[str, int]

    @property
    def is_collected(self) -> bool:
        """Whether a collector has read what a tracker was told."""
        return self.echo_of == self.data_source

    @property
    def is_outside(self) -> bool:
        """Whether these values did not come from the job itself."""
        return self.is_collected or self.data_source in OUTSIDE

    @property
    def way(self) -> tuple[str, bool]:
        """The data source, and whether it came from outside."""
        return self.data_source, self.is_outside


def quantity_of(metric: str) -> str:
    """One name for all names of a quantity: `train/loss`, `lm loss`, `loss` and `train_loss` are `loss`."""
    words = [word for word in _SEPARATORS.split(metric_name(metric).lower()) if word]
    is_evaluation = not _EVALUATIONS.isdisjoint(words)
    plain = "_".join(word for word in words if word not in _PLAIN_WORDS and word not in _EVALUATIONS)
    printed = VOCABULARY.get(plain)
    stored = printed.names if printed is not None and isinstance(printed.names, str) else ""
    name = _SYNONYMS.get(plain) or stored or plain or metric
    return f"eval_{name}" if is_evaluation else name


def drop_copies_of_runs(candidates: Iterable[Candidate]) -> LeftOut:
    """The copies of runs that are left out where data sources are named."""
    streams = list(candidates)
    left: dict[int, set[str]] = defaultdict(set)
    for members in _by_group(streams):
        _drop_copies_of_runs(members, left, {})
    return _with_copies(streams, left, {}, NOTHING, {})


def choose_copies(candidates: Iterable[Candidate], hidden: LeftOut) -> LeftOut:
    """Choose the copies that an answer leaves out; `hidden`, which it leaves out anyway, is added."""
    left: dict[int, set[str]] = defaultdict(set)
    choices: dict[tuple[str, str], set[str]] = defaultdict(set)
    told_by = dict(hidden.told_by)
    streams = list(candidates)
    for one in streams:
        left[one.id].update(one.points if one.id in hidden.streams else hidden.metrics.get(one.id, ()))
    for members in _by_group(streams):
        _drop_copies_of_runs(members, left, told_by)
        for cluster in _at_one_time(members):
            _drop_copies_of_quantities(cluster, left, choices)
            _find_training(cluster, left, told_by)
    return _with_copies(streams, left, choices, hidden, told_by)


def _by_group(streams: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    found: dict[str, list[Candidate]] = defaultdict(list)
    for one in streams:
        found[one.group].append(one)
    yield from found.values()


def _drop_copies_of_runs(members: Sequence[Candidate], left: dict[int, set[str]], told_by: dict[int, int]) -> None:
    """Of a run that a collector and the job have, drop the shorter; the job's where they are about as long."""
    for copy in members:
        if not copy.is_collected:
            continue
        own = [one for one in members if not one.is_outside and _is_same_run(one, copy) and _overlap(one, copy)]
        if not own:
            continue
        told_by[copy.id] = own[0].id
        if is_about_as_long(sum(one.rows for one in own), copy.rows):
            left[copy.id].update(*(one.points.keys() & copy.points.keys() for one in own))
        else:
            for one in own:
                left[one.id].update(one.points.keys() & copy.points.keys())


def _is_same_run(one: Candidate, other: Candidate) -> bool:
    """Whether two streams are of one run of one tracker; a run of TensorBoard is the end of a folder's path."""
    if one.data_source != other.data_source:
        return False
    if one.run_id == other.run_id:
        return True
    if one.data_source != "tensorflow":
        return False
    short, long = sorted((_folders(one.run_id), _folders(other.run_id)), key=len)
    return bool(short) and long[-len(short) :] == short


def _folders(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _overlap(one: Candidate, other: Candidate) -> bool:
    return one.first_us <= other.last_us and other.first_us <= one.last_us


def _at_one_time(members: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Yield the streams whose times overlap; a log that was read soon after the job ended belongs to it."""
    clusters: list[list[Candidate]] = []
    end = 0
    for one in sorted(members, key=lambda one: (one.first_us, one.id)):
        if clusters and one.first_us <= end:
            clusters[-1].append(one)
        elif clusters and one.data_source == LOG_SOURCE and _is_late_log(one, clusters[-1], end):
            clusters[-1].append(one)
            continue
        else:
            clusters.append([one])
            end = one.last_us
        end = max(end, one.last_us)
    yield from clusters


def _is_late_log(log: Candidate, cluster: Sequence[Candidate], end: int) -> bool:
    """Whether a log goes as far as the job did that has just ended, and no log of this job is known."""
    if log.first_us > end + _LATE_US or any(one.data_source == LOG_SOURCE for one in cluster):
        return False
    reached = max(one.last_iteration for one in cluster)
    rows = max(one.rows for one in cluster)
    return _is_close(log.last_iteration, reached) or _is_close(log.rows, rows)


def _is_close(one: int, other: int) -> bool:
    return is_about_as_long(one, other) and is_about_as_long(other, one)


def _drop_copies_of_quantities(
    cluster: Sequence[Candidate], left: dict[int, set[str]], choices: dict[tuple[str, str], set[str]]
) -> None:
    """Of each quantity that came from outside, too, leave one source."""
    if not any(one.is_outside for one in cluster) or len({one.way for one in cluster}) < 2:
        return
    found: dict[str, list[tuple[Candidate, str]]] = defaultdict(list)
    for one in cluster:
        for metric in one.points:
            if metric not in left[one.id]:
                found[quantity_of(metric)].append((one, metric))
    for quantity, carriers in found.items():
        if quantity in _POSITIONS or len({one.data_source for one, _ in carriers}) < 2:
            continue
        best = _best_way(carriers)
        chosen = next(one for one, _ in carriers if one.way == best)
        for one, metric in carriers:
            if one.data_source != chosen.data_source and (one.is_outside or chosen.is_outside):
                left[one.id].add(metric)
                choices[chosen.echo_of or chosen.data_source, chosen.data_source].add(one.data_source)
                if one.data_source == LOG_SOURCE:
                    left[one.id].update(name for name in one.points if quantity_of(name) in _POSITIONS)


def _find_training(cluster: Sequence[Candidate], left: Mapping[int, set[str]], told_by: dict[int, int]) -> None:
    """Note whose training a log or a collected run tells of, where the job logged only one run at that time."""
    own = [one for one in cluster if not one.is_outside and one.id not in told_by]
    if len({(one.data_source, one.run_id) for one in own}) != 1:
        return
    longest = max(own, key=lambda one: (one.rows, -one.id))
    for one in cluster:
        is_copy = any(not left[stream.id].isdisjoint(stream.points) for stream in (one, longest))
        if one.is_outside and one.id not in told_by and is_copy:
            told_by[one.id] = longest.id


def _best_way(carriers: Sequence[tuple[Candidate, str]]) -> tuple[str, bool]:
    """The source of a quantity to answer with."""
    of_runs: dict[tuple[str, bool], dict[str, int]] = defaultdict(dict)
    for one, metric in carriers:
        runs = of_runs[one.way]
        runs[one.run_id] = max(runs.get(one.run_id, 0), one.points[metric])
    points = {way: sum(runs.values()) for way, runs in of_runs.items()}
    longest = max(points.values())
    return min((way for way in points if is_about_as_long(points[way], longest)), key=_rank_of_way)


def _rank_of_way(way: tuple[str, bool]) -> tuple[int, int, str]:
    """The order of preference."""
    source, is_outside = way
    if source in OUTSIDE:
        return (4 if source == LOG_SOURCE else 3), *preference_of(source)
    return (2 if source in _FRAMEWORKS else int(is_outside)), *preference_of(source)


def _with_copies(
    streams: Sequence[Candidate],
    left: Mapping[int, set[str]],
    choices: dict[tuple[str, str], set[str]],
    hidden: LeftOut,
    told_by: Mapping[int, int],
) -> LeftOut:
    whole = {one.id for one in streams if one.points and left[one.id] >= one.points.keys()}
    metrics = {stream_id: frozenset(names) for stream_id, names in left.items() if names and stream_id not in whole}
    for choice in hidden.choices:
        choices[choice.echo_of, choice.data_source].update(choice.left_out)
    found = [SourceChoice(echo_of, source, tuple(sorted(choices[echo_of, source]))) for echo_of, source in choices]
    return LeftOut(
        {**hidden.metrics, **metrics},
        hidden.streams | whole,
        tuple(sorted(found, key=lambda one: (one.echo_of, one.data_source))),
        hidden.of_ranks or any(one.rank >= 0 for one in streams if one.id in metrics or one.id in whole),
        told_by,
        hidden.ranks,
    )

"""Prints the metrics of an Aim repository as lines of JSON. Runs alone, in a Python that has the package `aim`.

A line is `{"run": HASH, "name": NAME, …}` with what else is known of a run, after which the lines of its rows follow:
`[step, seconds, {metric: value}]`. It reads the storage of each run itself, because runs that Aim has not indexed yet
are empty in its own listing.
"""

from __future__ import annotations

import heapq
import json
import sys
from array import array
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

_SYSTEM = "__system__"
# The environment of the process, its packages and Git state, beside the user's own parameters.
_SYSTEM_PARAMS = "__system_params"


class Column(NamedTuple):
    """The values of a metric, by step."""

    name: str
    steps: array[int]
    values: array[float]
    times: array[float]

    def points_by_step(self) -> Iterator[tuple[int, float, str, float]]:
        """Yield step, time, name and value of each."""
        for place, step in enumerate(self.steps):
            yield step, self.times[place], self.name, self.values[place]


def write_repository(path: str, write: Callable[[Any], None]) -> None:
    """Write all runs of a repository."""
    import aim
    from aim.storage.context import Context

    repo = aim.Repo(path)
    for run_hash in sorted(repo.list_all_runs()):
        run = aim.Run(run_hash, repo=repo, read_only=True)
        tree = repo.request_tree("meta", run_hash, read_only=True).subtree("meta").subtree("chunks").subtree(run_hash)
        run.meta_run_tree = tree
        try:
            known = tree.collect()
        except KeyError:  # nothing was logged
            continue
        columns = []
        for context_id, names in known.get("typed_traces", {}).get("metric", {}).items():
            context = known["contexts"][context_id]
            for name in names:
                if not name.startswith(_SYSTEM):
                    metric = aim.Metric(name, Context(context), run)
                    columns.append(_column_of(metric, _prefix_of_context(context) + name))
        write({"run": run_hash, **_description(run, known)})
        for row in rows_of_columns(columns):
            write(row)


def _description(run: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The names, times and parameters of a run."""
    name, tree = str(run.name or ""), known.get("attrs", {})
    git = tree.get(_SYSTEM_PARAMS, {}).get("git_info", {}) if isinstance(tree.get(_SYSTEM_PARAMS), dict) else {}
    return {
        "name": "" if name == f"Run: {run.hash}" else name,  # Aim's own, for a run without a name
        "experiment": str(run.experiment or ""),
        "tags": [str(tag) for tag in run.tags or ()],
        "note": str(run.description or ""),
        "commit": str((git.get("commit") or {}).get("hash") or "") if isinstance(git, dict) else "",
        "config": {str(key): value for key, value in tree.items() if not str(key).startswith("__")},
        "started": run.creation_time or 0.0,
        "ended": known.get("end_time") or 0.0,
    }


def _prefix_of_context(context: dict[str, Any]) -> str:
    """A context such as `{"subset": "train"}` as the beginning of a name, as by the hook: `train/`."""
    return "".join(f"{value}/" for _, value in sorted(context.items(), key=lambda item: str(item[0])))


def _column_of(metric: Any, name: str) -> Column:
    steps, (values, _, times) = metric.data.items_list()
    places = sorted(range(len(steps)), key=steps.__getitem__)
    return Column(
        name,
        array("q", (int(steps[place]) for place in places)),
        array("d", (values[place] for place in places)),
        array("d", (times[place] for place in places)),
    )


def rows_of_columns(columns: list[Column]) -> Iterator[list[Any]]:
    """Yield the rows of metrics by step: `[step, seconds, values]`; a name that comes twice begins another row."""
    merged = heapq.merge(*(column.points_by_step() for column in columns), key=itemgetter(0))
    for step, points in groupby(merged, key=itemgetter(0)):
        row: dict[str, float] = {}
        latest = 0.0
        for _, time, name, value in points:
            if name in row:
                yield [step, latest, row]
                row, latest = {}, 0.0
            row[name] = value
            latest = max(latest, time)
        yield [step, latest, row]


def _as_text(value: Any) -> str:
    """Stand for an object of Aim among parameters; its own text may be anything."""
    return f"<{type(value).__name__}>"


def print_repository() -> None:
    """Read the repository that is the first argument."""
    del sys.path[0]  # the folder of this file, whose modules have the names of others
    output = sys.stdout
    sys.stdout = sys.stderr  # Aim's own words
    write_repository(sys.argv[1], lambda line: print(json.dumps(line, default=_as_text, skipkeys=True), file=output))
    output.flush()


if __name__ == "__main__":
    print_repository()

"""The ledger for people, from the answer for programs: one sentence, a bar, the buckets, the interruptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

Answer = Mapping[str, Any]

_WIDTH = 60
_COLOURS = {
    "productive": "green",
    "startup": "cyan",
    "restore": "cyan",
    "checkpoint": "blue",
    "evaluation": "blue",
    "data": "magenta",
    "slow": "yellow",
    "stalled": "red",
    "lost": "red",
    "down": "bright_black",
    "queued": "bright_black",
    "periodic": "blue",
}
_LETTERS = {"productive": "█", "lost": "×", "stalled": "!", "down": "·", "queued": "·", "slow": "▒"}


def report(answer: Answer) -> str:
    """The whole report of one run."""
    return "\n".join(_lines(answer))


def fleet_report(answer: Answer) -> str:
    """The whole report of all jobs."""
    return "\n".join(_fleet_lines(answer))


def sentence(answer: Answer) -> str:
    """The ledger in words."""
    if answer["goodput"] is None:
        return f"{answer['run']}: no time has passed"
    text = f"{_progress(answer)} of {_whole(answer)} made progress"
    others = {name: seconds for name, seconds in answer["buckets"].items() if name != "productive" and seconds > 0}
    if not others:
        return text
    worst = max(others, key=lambda name: others[name])
    return f"{text}; most of the rest was {worst}: {duration(others[worst])}{_blame(answer)}"


def _progress(answer: Answer) -> str:
    """The share that made progress, of the buckets: that of the answer is rounded, and would be rounded twice."""
    buckets = answer["buckets"]
    measured = sum(buckets.values()) - buckets.get("queued", 0.0)
    return f"{buckets['productive'] / measured if measured > 0 else answer['goodput']:.1%}"


def _whole(answer: Answer) -> str:
    """The time that the ledger is about: in GPU-hours where the GPUs are known."""
    gpu = answer.get("gpu_seconds")
    if gpu:
        hours = sum(gpu.values()) / 3600
        return f"{hours:,.{0 if hours >= 10 else 1}f} GPU-hours ({duration(answer['wall_seconds'])})"
    return duration(answer["wall_seconds"])


def _blame(answer: Answer) -> str:
    """The cause that cost most, where a daemon knows more than a log."""
    if "gpu_seconds" not in answer:
        return ""
    costs: dict[tuple[str, str], list[float]] = {}
    for found in answer["interruptions"]:
        costs.setdefault((found["cause"], found["node"] or ""), []).append(found["seconds"])
    if not costs:
        return ""
    (cause, node), seconds = max(costs.items(), key=lambda one: sum(one[1]))
    place = f" on node {node}" if node else ""
    return f"; {len(seconds)} × {cause}{place} cost {duration(sum(seconds))}"


def duration(seconds: float) -> str:
    """Seconds for people: 45.0 s, 12 min 3 s, 5 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _lines(answer: Answer) -> Iterator[str]:
    yield sentence(answer)
    yield _bar(answer)
    yield from _buckets(answer)
    pace = answer.get("step_seconds") or {}
    if pace.get("typical") is not None and pace.get("best") is not None:
        yield ""
        yield f"a step: {pace['typical']:.3f} s as a rule, {pace['best']:.3f} s at the best pace held"
        if answer.get("effective_goodput") is not None:
            best, share = pace["best_of_siblings"], answer["effective_goodput"]
            yield f"the fastest job like this one takes {best:.3f} s: by its pace {share:.1%} of the time made progress"
    if answer["interruptions"]:
        yield ""
        width = max(24, *(len(found["cause"]) + 2 for found in answer["interruptions"]))
        node = max(16, *(len(found["node"] or "") + 2 for found in answer["interruptions"]))
        yield f"{'INTERRUPTION':<{width}}{'NODE':<{node}}{'RANK':>5}{'COST':>14}{'GPU-HOURS':>11}{_price_head(answer)}"
        yield from (_interruption(found, width, node) for found in answer["interruptions"])
    yield ""
    yield f"resolution: {answer['resolution']}"
    yield from (f"note: {note}" for note in answer["notes"])


def _fleet_lines(answer: Answer) -> Iterator[str]:
    if answer["by"] == "workload":
        yield from _groups(answer)
        return
    if not answer["jobs"]:
        yield "no job has a ledger in this span; one that logs steps has it a minute or two after its first"
        return
    share = "nothing" if answer["goodput"] is None else _progress(answer)
    yield f"{share} of {duration(answer['wall_seconds'])} of {_jobs(answer['jobs'])} made progress"
    if answer["wall_seconds"] <= 0:
        return
    yield _bar(answer)
    yield from _buckets(answer)
    if not answer["groups"]:
        return
    yield ""
    if answer["by"] in ("cause", "node"):
        width = max(28, *(len(group["name"]) + 2 for group in answer["groups"]))
        counts = f"{'COUNT':>7}{'JOBS':>6}{'COST':>14}{'GPU-HOURS':>11}"
        yield f"{answer['by'].upper():<{width}}{counts}{_price_head(answer)}"
        for group in answer["groups"]:
            hours = "unknown" if group["gpu_hours"] is None else f"{group['gpu_hours']:.2f}"
            counts = f"{group['interruptions']:>7}{group['jobs']:>6}"
            yield f"{group['name'] or '–':<{width}}{counts}{duration(group['seconds']):>14}{hours:>11}{_price(group)}"
        return
    yield from _groups(answer)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _groups(answer: Answer) -> Iterator[str]:
    yield f"{answer['by'].upper():<28}{'JOBS':>6}{'TIME':>16}{'GOODPUT':>10}"
    for group in answer["groups"]:
        goodput = "–" if group["goodput"] is None else f"{group['goodput']:.1%}"
        yield f"{group['name'] or '–':<28}{group['jobs']:>6}{duration(group['wall_seconds']):>16}{goodput:>10}"


def _buckets(answer: Answer) -> Iterator[str]:
    yield ""
    costs = answer.get("costs") or {}
    if answer["wall_seconds"] <= 0:
        return
    yield f"{'BUCKET':<12}{'TIME':>14}{'SHARE':>9}" + (_price_head(answer) if costs else "")
    for name, seconds in sorted(answer["buckets"].items(), key=lambda one: -one[1]):
        if seconds > 0:
            share = seconds / answer["wall_seconds"]
            yield (
                click.style(f"{name:<12}", fg=_COLOURS.get(name))
                + f"{duration(seconds):>14}{share:>9.1%}"
                + (f"{costs[name]:>14,.2f}" if costs else "")
            )


def _bar(answer: Answer) -> str:
    """A bar as wide as the wall time; a bucket of half a letter's width or more is in it."""
    wall = answer["wall_seconds"]
    if wall <= 0:
        return ""
    parts = []
    reached, drawn = 0.0, 0
    for name, seconds in answer["buckets"].items():
        reached += seconds
        until = round(_WIDTH * reached / wall)
        parts.append(click.style(_LETTERS.get(name, "─") * (until - drawn), fg=_COLOURS.get(name)))
        drawn = until
    return "".join(part for part in parts if part)


def _price_head(answer: Answer) -> str:
    return f"{'PRICE':>14}" if "price_per_gpu_hour" in answer else ""


def _price(found: Answer) -> str:
    """The money that GPU-hours cost; nothing where nobody gave a price."""
    if "cost" not in found:
        return ""
    return f"{'unknown':>14}" if found["cost"] is None else f"{found['cost']:>14,.2f}"


def _interruption(found: Answer, width: int, node: int) -> str:
    rank = "" if found["rank"] is None else str(found["rank"])
    hours = "unknown" if found["gpu_hours"] is None else f"{found['gpu_hours']:.2f}"
    place = f"{found['cause']:<{width}}{found['node'] or '–':<{node}}{rank:>5}"
    return f"{place}{duration(found['seconds']):>14}{hours:>11}{_price(found)}"

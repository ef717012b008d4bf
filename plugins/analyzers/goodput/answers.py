"""The JSON of ledgers: of a log, of a workload, of a fleet."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from .accounts import spread
from .estimator import best_checkpoint_seconds, expected_ettr
from .facts import BUCKETS, Ints, Ledger
from .ledger import Books, close
from .rows import MICRO
from .wording import sentence

_PARTS = 200
_DAY_SECONDS = 86400.0


def as_answer(ledger: Ledger) -> dict[str, Any]:
    """The ledger in the shape of the API's answers."""
    interruptions = [msgspec.to_builtins(found) for found in ledger.interruptions]
    for interruption in interruptions:
        del interruption["time"]
    return {
        "run": ledger.run,
        "wall_seconds": ledger.wall_seconds,
        "goodput": None if ledger.goodput is None else round(ledger.goodput, 4),
        "buckets": ledger.buckets,
        "interruptions": interruptions,
        "resolution": ledger.resolution,
        "notes": ledger.notes,
    }


def as_whole_answer(books: Books, since: float | None = None, best_of_siblings: float | None = None) -> dict[str, Any]:
    """The same with what a page draws: the sentence, the attempts, and the buckets over the life of the run.

    With `since` (seconds since the epoch) only of the time after it. `best_of_siblings` are the seconds per step of
    the fastest of the jobs like this one.
    """
    ledger = close(books) if since is None else _close_since(books, since)
    end = max((account.life.end + round(sum(account.gap.values())) for account in books.accounts), default=0)
    begin = 0 if since is None else min(end, max(0, round(since * MICRO) - books.origin))
    is_long = end - begin >= _PARTS
    edges = np.linspace(begin, end, _PARTS + 1).astype(np.int64) if is_long else np.array([begin, max(begin + 1, end)])
    parts = spread(books.accounts, edges)
    answer = as_answer(ledger) | {"gpu_seconds": ledger.gpu_seconds}
    return {
        **answer,
        **_advice(books, ledger),
        "sentence": sentence(answer),
        "ettr": None if ledger.ettr is None else round(ledger.ettr, 4),
        "gpu_goodput": None if ledger.gpu_goodput is None else round(ledger.gpu_goodput, 4),
        "effective_goodput": _effective(ledger, best_of_siblings),
        "step_seconds": {
            "typical": ledger.typical_seconds,
            "best": ledger.best_seconds,
            "best_of_siblings": best_of_siblings,
        },
        "at_risk_seconds": ledger.at_risk_seconds,
        "open_seconds": ledger.open_seconds,
        "attempts": [
            {
                "start": round((books.origin + account.life.start) / 1000),
                "end": round((books.origin + account.life.end) / 1000),
                "gpus": account.life.facts.gpus,
                "restarts": account.life.facts.restarts,
                "ended": account.life.facts.cause or ("cleanly" if account.life.facts.ended_cleanly else ""),
                "node": account.life.facts.node,
            }
            for account in books.accounts
        ],
        "timeline": {
            "edges": [round((books.origin + int(edge)) / 1000) for edge in edges],
            "buckets": {name: [round(float(one), 3) for one in amounts] for name, amounts in parts.items()},
        },
    }


def _effective(ledger: Ledger, best_of_siblings: float | None) -> float | None:
    """The goodput that the steps would have at the pace of the fastest sibling; None without siblings."""
    if ledger.goodput is None or not ledger.best_seconds or best_of_siblings is None:
        return None
    return round(ledger.goodput * min(1.0, best_of_siblings / ledger.best_seconds), 4)


def goodput_since(books: Books, since: float) -> float | None:
    """The goodput of the time after a moment (seconds since the epoch); None where the run has none."""
    return _close_since(books, since).goodput


def _gpu_seconds(books: Books, edges: Ints) -> dict[str, float] | None:
    """The GPU-seconds of each bucket between two edges; None unless the GPUs of every attempt in it are known."""
    total = dict.fromkeys(BUCKETS, 0.0)
    for account in books.accounts:
        parts = spread([account], edges)
        seconds = sum(float(amounts[0]) for amounts in parts.values())
        gpus = account.life.facts.gpus
        if gpus is None and seconds > 0:
            return None
        for name, amounts in parts.items():
            total[name] += float(amounts[0]) * (gpus or 0)
    return total


def _advice(books: Books, ledger: Ledger) -> dict[str, Any]:
    """The mean time between interruptions, and how often to save by it: the Young/Daly rule."""
    ends = len(ledger.interruptions)
    worked = ledger.buckets["productive"] + ledger.buckets["slow"]
    between = worked / ends if ends and worked > 0 else None
    saves = {(one.start, one.end) for account in books.accounts for one in account.life.facts.saves if not one.marker}
    each = ledger.buckets["checkpoint"] / len(saves) if saves else None
    best = expected = None
    if each and between:
        best = best_checkpoint_seconds(each, between)
        again = [account.buckets["startup"] + account.buckets["restore"] for account in books.accounts[1:]]
        gaps = [sum(account.gap.values()) for account in books.accounts]
        expected = expected_ettr(
            1,
            _DAY_SECONDS / between,
            restart_minutes=(sum(again) + sum(gaps)) / MICRO / ends / 60,
            interval_minutes=best / 60,
            write_minutes=each / 60,
        )
    return {
        "seconds_between_interruptions": between,
        "checkpoints": {
            "saves": len(saves),
            "seconds_each": each,
            "best_interval_seconds": best,
            "expected_ettr": None if expected is None else round(expected, 4),
        },
    }


def _close_since(books: Books, since: float) -> Ledger:
    """The ledger of the time after a moment."""
    ledger = close(books)
    end = max((account.life.end + round(sum(account.gap.values())) for account in books.accounts), default=0)
    begin = min(end, max(0, round(since * MICRO) - books.origin))
    edges = np.array([begin, end], dtype=np.int64)
    parts = spread(books.accounts, edges) if end > begin else {}
    gpu = _gpu_seconds(books, edges) if end > begin else None
    gpu_busy = sum(gpu.values()) - gpu["queued"] if gpu is not None else 0.0
    buckets = {name: max(0.0, round(float(parts[name][0]), 6)) if parts else 0.0 for name in ledger.buckets}
    wall = round(sum(buckets.values()), 6)
    busy = wall - buckets["queued"]
    return msgspec.structs.replace(
        ledger,
        wall_seconds=wall,
        buckets=buckets,
        goodput=buckets["productive"] / busy if busy > 0 else None,
        ettr=buckets["productive"] / wall if wall > 0 else None,
        gpu_seconds=gpu,
        gpu_goodput=gpu["productive"] / gpu_busy if gpu is not None and gpu_busy > 0 else None,
        interruptions=[found for found in ledger.interruptions if found.time >= since],
    )


def days_of(books: Books) -> list[tuple[int, dict[str, float], dict[str, float] | None]]:
    """For each day (UTC, days since the epoch) the seconds of each bucket, and the GPU-seconds if all are known."""
    end = max((account.life.end + round(sum(account.gap.values())) for account in books.accounts), default=0)
    if end <= 0:
        return []
    day = 86400 * MICRO
    first, last = books.origin // day, (books.origin + end) // day
    edges = np.arange(first, last + 2, dtype=np.int64) * day - books.origin
    seconds = spread(books.accounts, edges)
    gpu: dict[str, Any] | None = {name: np.zeros(len(edges) - 1) for name in seconds}
    for account in books.accounts:
        gpus = account.life.facts.gpus
        if gpus is None or gpu is None:
            gpu = None
            break
        for name, amounts in spread([account], edges).items():
            gpu[name] += gpus * amounts
    return [
        (
            int(first) + index,
            {name: float(amounts[index]) for name, amounts in seconds.items()},
            {name: float(amounts[index]) for name, amounts in gpu.items()} if gpu is not None else None,
        )
        for index in range(len(edges) - 1)
    ]

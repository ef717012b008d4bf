"""Makes the ledger of a run: every microsecond of its wall time in one bucket, every interruption with its cost.

Productive is the time of the steps that survived at the best pace; the rest is divided by rules (docs/goodput.md).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .accounts import Account
from .facts import BUCKETS, Facts, Floats, Interruption, Ledger
from .intervals import divide, name_periodic, overlap, stall_limit
from .pace import bases_of, best_at, best_of
from .rows import MICRO
from .series import Life, PaceKey, clamp, lives_of, micros

_HOUR = 3600.0


class Books(NamedTuple):
    """The accounts of a run's attempts, before they are closed."""

    facts: Facts
    accounts: Sequence[Account]
    best: dict[PaceKey, float]
    origin: int
    at_risk: float | None
    has_periodic: bool


def ledger_of(facts: Facts) -> Ledger:
    """The ledger of one run."""
    return close(books_of(facts))


def books_of(facts: Facts) -> Books:
    """Divide the time of one run among accounts of its attempts."""
    lives, origin = lives_of(facts)
    bases = bases_of(lives)
    best = best_of(lives, bases)
    accounts = []
    for life, base in zip(lives, bases, strict=True):
        divided = divide(life, base, best_at(life, best), origin, has_phases=facts.has_phases)
        accounts.append(Account(life, base, divided))
    every = max((account.life.every for account in accounts), default=1)
    has_periodic = name_periodic([account.divided for account in accounts], every)
    for index, account in enumerate(accounts):
        is_last = index == len(accounts) - 1
        _begin(account)
        _finish(account, origin, is_open=is_last and facts.now is not None and account.life.facts.end is None)
        if not is_last:
            _leave(account, lives[index + 1], facts, origin)
    at_risk = _mark_lost(accounts, facts)
    for account in accounts:
        account.buckets.update(account.divided.buckets)
        account.book("slow", float(account.divided.slow.sum()))
        account.book("productive", account.first + float(account.divided.productive.sum()))
    return Books(facts, accounts, best, origin, at_risk, has_periodic)


def _begin(account: Account) -> None:
    """The time from the start of the process to its first row: steps done in it, restore, start-up."""
    life = account.life
    if not len(life.times):
        account.book("startup", life.end - life.start, life.start, life.end)
        return
    before = float(life.times[0] - life.start)
    steps = max(0, int(life.steps[0]) - life.resumed_from)
    account.first = min(before, steps * _base_at(account, 0)) if account.base is not None else 0.0
    restore = min(before - account.first, life.facts.restore_seconds * MICRO)
    span = (life.start, int(life.times[0]))
    account.book("restore", restore, *span)
    account.book("startup", before - account.first - max(0.0, restore), *span)


def _finish(account: Account, origin: int, *, is_open: bool) -> None:
    """The time from the last row to the end: saves and evaluations, one interval of unseen work, a hang."""
    life = account.life
    if not len(life.times):
        return
    last = int(life.times[-1])
    tail = float(life.end - last)
    if tail <= 0:
        return
    usual = life.every * _base_at(account, -1) if account.base is not None else 0.0
    if is_open and tail <= usual + stall_limit(usual):
        account.open = tail
        return
    for bucket, spans in (("checkpoint", life.facts.saves), ("evaluation", life.facts.evaluations)):
        covered = overlap([clamp(span, life, origin) for span in spans if not span.marker], last, life.end)
        covered = min(tail, covered)
        account.book(bucket, covered, last, life.end)
        tail -= covered
    if not life.facts.cause and _is_marked(life, origin):
        account.book("evaluation", tail, last, life.end)
        return
    unseen = min(tail, usual)
    rest = tail - unseen
    # Behind a clean end nothing is lost: the process was putting things away.
    bucket = "slow" if life.facts.ended_cleanly else "lost"
    account.book(bucket, unseen, last, life.end)
    account.book("stalled" if rest > stall_limit(usual) else bucket, rest, last, life.end)
    account.tail = tail


def _is_marked(life: Life, origin: int) -> bool:
    """Whether an evaluation is marked after the last row."""
    marks = (clamp(span, life, origin)[0] for span in life.facts.evaluations if span.marker)
    return any(mark >= life.times[-1] for mark in marks)


def _leave(account: Account, following: Life, facts: Facts, origin: int) -> None:
    """The gap up to the next attempt: down while GPUs were held, else queued; none after a clean end."""
    gap = float(following.start - account.life.end)
    if gap <= 0 or account.life.facts.ended_cleanly:
        return
    if facts.held is None:
        account.gap["down"] = gap  # type: ignore[assignment]
        return
    held = [(micros(start) - origin, micros(end) - origin) for start, end in facts.held]
    down = overlap(held, account.life.end, following.start)
    account.gap.update({"down": down, "queued": gap - down})


def _mark_lost(accounts: Sequence[Account], facts: Facts) -> float | None:
    """Move the productive time of steps that were done again to `lost`; the seconds that are at risk now."""
    for index, account in enumerate(accounts):
        if not len(account.life.steps) or index == 0:
            continue
        behind = [number for number in range(index) if len(accounts[number].life.steps)]
        for number in behind:
            moved = _take_back(accounts[number], account.life.resumed_from)
            if moved > 0:
                accounts[number].book("lost", moved)
                accounts[behind[-1]].took_back.append((accounts[number], moved))
    saved = [
        span.step
        for account in accounts
        for span in account.life.facts.saves
        if span.step is not None and not span.marker
    ]
    if not saved or not accounts:
        return None
    last = accounts[-1]
    if last.life.facts.cause and facts.now is None:
        for account in accounts:
            moved = _take_back(account, max(saved))
            account.book("lost", moved)
            last.took_back.append((account, moved))
        return 0.0
    return sum(_take_back(account, max(saved), keep=True) for account in accounts) / MICRO


def _take_back(account: Account, step: int, *, keep: bool = False) -> float:
    """The productive time of an attempt's steps above `step`, pro rata of what it cuts; removed unless `keep`."""
    life = account.life
    if not len(life.steps) or life.steps[-1] <= step:
        return 0.0
    begins, ends = life.steps[:-1], life.steps[1:]
    share = np.clip((ends - step) / np.maximum(1, ends - begins), 0.0, 1.0)
    moved: Floats = account.divided.productive * share
    first_steps = int(life.steps[0]) - life.resumed_from
    first_share = min(1.0, max(0.0, (int(life.steps[0]) - step) / first_steps)) if first_steps > 0 else 0.0
    first = account.first * first_share
    if not keep:
        account.divided.productive = account.divided.productive - moved
        account.lost = moved if account.lost is None else account.lost + moved
        account.first -= first
        account.first_lost += first
    return float(moved.sum()) + first


def _base_at(account: Account, index: int) -> float:
    return float(account.base[index]) if account.base is not None else 0.0


def close(books: Books) -> Ledger:
    """Add the accounts up."""
    facts, accounts, best = books.facts, books.accounts, books.best
    sums: Counter[str] = Counter()
    for account in accounts:
        sums.update(account.buckets)
        sums.update(account.gap)
    wall = sum(account.life.end - account.life.start for account in accounts)
    wall += round(sum(sum(account.gap.values()) for account in accounts) - sum(account.open for account in accounts))
    buckets = {name: whole / MICRO for name, whole in _in_whole(sums, wall).items()}
    busy = wall / MICRO - buckets["queued"]
    gpu = _gpu_seconds(accounts)
    gpu_busy = sum(gpu.values()) - gpu["queued"] if gpu is not None else 0.0
    measured = [account for account in accounts if account.base is not None and len(account.life.steps) > 1]
    return Ledger(
        run=facts.run,
        wall_seconds=wall / MICRO,
        goodput=buckets["productive"] / busy if busy > 0 else None,
        ettr=buckets["productive"] * MICRO / wall if wall > 0 else None,
        buckets=buckets,
        gpu_seconds=gpu,
        gpu_goodput=gpu["productive"] / gpu_busy if gpu is not None and gpu_busy > 0 else None,
        interruptions=_interruptions(books),
        resolution=_resolution(facts, accounts),
        notes=_notes(facts, accounts, has_periodic=books.has_periodic),
        typical_seconds=float(np.median(np.concatenate([account.base for account in measured]))) / MICRO
        if measured
        else None,
        best_seconds=best[accounts[-1].life.pace_key] / MICRO
        if accounts and accounts[-1].life.pace_key in best
        else None,
        at_risk_seconds=books.at_risk,
        open_seconds=sum(account.open for account in accounts) / MICRO,
    )


def _in_whole(sums: Counter[str], wall: int) -> dict[str, int]:
    """The buckets in whole microseconds that add up to the wall time: what rounding leaves goes to the largest."""
    whole = {name: max(0, round(sums.get(name, 0.0))) for name in BUCKETS}
    largest = max(whole, key=lambda name: whole[name])
    whole[largest] += wall - sum(whole.values())
    return whole


def _gpu_seconds(accounts: Sequence[Account]) -> dict[str, float] | None:
    """The buckets in GPU-seconds; None unless the GPUs of every attempt are known."""
    total = dict.fromkeys(BUCKETS, 0.0)
    for account in accounts:
        gpus = account.life.facts.gpus
        if gpus is None:
            return None
        for name, amount in (*account.buckets.items(), *account.gap.items()):
            total[name] += amount * gpus / MICRO
    return total if accounts else None


def _interruptions(books: Books) -> list[Interruption]:
    """Each end that was not clean, with the lost work, the hang before it, the gap and the next start."""
    accounts, facts = books.accounts, books.facts
    found = []
    for index, account in enumerate(accounts):
        own, is_last = account.life.facts, index == len(accounts) - 1
        if own.ended_cleanly or (is_last and (not own.cause or facts.now is not None)):
            continue
        parts = [(account, account.tail), (account, sum(account.gap.values()))]
        parts += account.took_back
        if not len(account.life.times) and index == 0:
            parts.append((account, float(account.life.end - account.life.start)))
        if not is_last:
            following = accounts[index + 1]
            parts.append((following, following.buckets["startup"] + following.buckets["restore"]))
        gpus = [part.life.facts.gpus for part, _ in parts]
        hours = None
        if None not in gpus:
            hours = sum(amount * (part.life.facts.gpus or 0) for part, amount in parts) / MICRO / _HOUR
        found.append(
            Interruption(
                cause=own.cause or "unknown",
                node=own.node or None,
                rank=own.rank,
                seconds=round(sum(amount for _, amount in parts) / MICRO, 6),
                gpu_hours=hours,
                time=(books.origin + account.life.end) / MICRO,
            )
        )
    return found


def _resolution(facts: Facts, accounts: Sequence[Account]) -> str:
    """The resolution of the breakdown: `none`, `approximate`, or the steps between rows."""
    if not any(account.base is not None for account in accounts):
        return "none"
    if facts.is_approximate:
        return "approximate"
    every = max(_steps_between(account.life) for account in accounts if len(account.life.steps))
    return "every step" if every == 1 else f"every {every} steps"


def _steps_between(life: Life) -> int:
    if not life.is_coarse or len(life.steps) < 2:
        return life.every
    return int(np.median(np.diff(life.steps)))


def _notes(facts: Facts, accounts: Sequence[Account], *, has_periodic: bool) -> list[str]:
    notes = []
    if any(account.life.facts.gpus is None for account in accounts):
        notes.append("gpus: unknown; GPU-hours are not given, because a guess would be worse than none")
    if any(account.base is None and len(account.life.steps) for account in accounts):
        notes.append("fewer than 5 intervals between rows: all time in the training loop counts as productive")
    if any(account.life.is_coarse for account in accounts):
        notes.append("the clock has whole seconds, about as long as a step: rows were taken together")
    if has_periodic:
        notes.append("pauses that come every so many steps are 'periodic': are they checkpoints or evaluations?")
    if facts.held is None and any(account.gap for account in accounts):
        notes.append("nobody knows whether GPUs were held between attempts: all of it is 'down', none is 'queued'")
    if facts.has_phases:
        notes.append("reinforcement learning: its steps differ in kind, so no time is called 'slow'")
    if facts.is_approximate:
        notes.append("approximate: some rows have no time of their own")
    left_out = any(
        account.life.facts.ended_cleanly and later.life.start > account.life.end
        for account, later in itertools.pairwise(accounts)
    )
    if left_out:
        notes.append("the time between a clean end and the next start is no part of the wall time")
    last = accounts[-1].life.facts if accounts else None
    if last is not None and last.cause and facts.now is None and not any(a.life.facts.saves for a in accounts):
        notes.append("the job failed and no checkpoint is known: how much of its last work is lost cannot be told")
    return notes

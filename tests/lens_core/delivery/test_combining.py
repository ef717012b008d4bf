"""A sink's parts as one: sums, the worst state, and the newest of what happened once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.combining import combine_sinks
from lens_core.delivery.ledger import Ledger
from lens_core.delivery.sending.sender import SinkStatus

TIMES = st.none() | st.floats(1.0, 2e9)
COUNTS = st.integers(0, 1000)
LEDGER = Ledger("s", SelfMetrics()).ledger_status()
STATUSES = st.builds(
    SinkStatus,
    name=st.just("s"),
    required=st.booleans(),
    state=st.sampled_from(["starting", "stopped", "idle", "sending", "retrying", "failing"]),
    pending_records=COUNTS,
    pending_bytes=COUNTS,
    lag_seconds=st.floats(0, 1e6),
    delivered_per_second=st.integers(0, 1000).map(float),
    retries=COUNTS,
    failures_in_a_row=COUNTS,
    last_error=st.text(max_size=3),
    last_error_at=TIMES,
    last_success_at=TIMES,
    dead_letters=COUNTS,
    ledger=st.just(LEDGER),
    dead_letter_reason=st.sampled_from(["", "", "a", "b"]),
)


@given(st.lists(STATUSES, max_size=5))
def test_parts_are_one_sink(parts: list[SinkStatus]) -> None:
    found = combine_sinks("s", parts, [LEDGER for _ in parts])
    for name in ("pending_records", "pending_bytes", "delivered_per_second", "retries", "dead_letters"):
        assert getattr(found, name) == sum(getattr(part, name) for part in parts)
    for name in ("lag_seconds", "failures_in_a_row"):
        assert getattr(found, name) == max((getattr(part, name) for part in parts), default=0)
    errors = [(part.last_error_at, part.last_error) for part in parts if part.last_error_at is not None]
    newest = max((time for time, _ in errors), default=None)
    assert found.last_error_at == newest
    assert newest is None or (newest, found.last_error) in errors
    assert found.last_success_at == max((one.last_success_at for one in parts if one.last_success_at), default=None)
    states = {part.state for part in parts}
    worst = [state for state in ("failing", "retrying", "sending", "idle", "stopped", "starting") if state in states]
    assert found.state == (worst[0] if worst else "idle")
    assert found.dead_letter_reason in {part.dead_letter_reason for part in parts} | {""}
    assert bool(found.dead_letter_reason) == any(part.dead_letter_reason for part in parts)

"""A stream that somebody deletes takes with it what waited, and nothing that is acknowledged after it was made anew."""

from __future__ import annotations

from typing import Any

import nats
import pytest

from lens_core import LogLine, StepMetrics
from lens_core.base.errors import Overloaded
from lens_core.model.records import encode_envelope
from lens_core.testing import until
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_as_one import line
from tests.lens_core.cluster.test_cluster_road import row, stored

LEASE_SECONDS = 3.0


@pytest.mark.parametrize("kind", ["", "_in"])
async def test_what_is_acknowledged_after_a_stream_was_made_anew_arrives(
    daemons: Daemons, cluster_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("lens_core.cluster.cluster.REFRESH_SECONDS", 0.2)
    both = [await daemons(), await daemons()]
    for step in range(1, 11):
        await both[step % 2].send([row(f"job-{step}", step), line(step)])
    await until(lambda: len(stored(both)) == 20, "rows, and the steps of lines")
    async with await nats.connect(cluster_settings["nats"]) as client:
        await client.jetstream().delete_stream(f"{cluster_settings['name']}_default{kind}")
    refused = await both[0].post(
        "/records", encode_envelope([row("job", 1), line(11)]), content_type="application/msgpack"
    )
    assert refused.status_code == 503
    pipelines = [lens.daemon.assembly.cluster.pipelines[0] for lens in both if lens.daemon.assembly.cluster]  # type: ignore[union-attr]
    with pytest.raises(Overloaded, match="does not exist any more, and what waited in it is lost: somebody deleted it"):
        await pipelines[0].stream.refresh()
    assert "restart one of the daemons" in pipelines[0].log.why_full()
    all_three = [*both, await daemons()]
    await until(lambda: len({one.stream.identity + one.stream.input_mark for one in pipelines}) == 1, "both know it")
    fresh = all_three[2].daemon.assembly.cluster.pipelines[0].stream  # type: ignore[union-attr]
    await until(lambda: {one.stream.input_mark for one in pipelines} == {fresh.input_mark}, "and as the third does")

    async def arrived(step: int) -> None:
        await until(
            lambda: sum(isinstance(one, StepMetrics) and one.row_step == step for one in stored(all_three)) == 2,
            f"step {step} of the row and of the line",
        )

    for step in range(12, 16):
        await all_three[step % 3].send([row(f"job-{step}", step), line(step)])
        await arrived(step)
    assert len(stored(all_three, LogLine)) >= 14

"""An export outlives the daemon that made it: whoever is asked for it makes it again."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import httpx

from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row

POINTS = "/api/v1/workloads/job/metrics/data?metrics=loss"


async def answer_of(lens: RunningLens, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.request(method, f"{lens.url}{path}")


async def wait_for_export(lens: RunningLens, path: str) -> dict[str, Any]:
    """The export once it is done; a daemon that has just gone counts as silent until its key is seen to be gone."""
    while True:
        answer = await answer_of(lens, path)
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 200 and (state := answer.json())["state"] == "done":
            return dict(state)
        await asyncio.sleep(0.05)


async def test_an_export_outlives_the_daemon_that_made_it(daemons: Daemons, postgres_dsn: str) -> None:
    config = {"sinks": {"store": {"type": "postgresql", "dsn": postgres_dsn}}, "store": "store"}
    three = [await daemons(config) for _ in range(3)]
    await three[0].send([row("job", step) for step in range(5)])
    while (data := await answer_of(three[0], POINTS)).status_code == 404 or len(data.json()["data"]) < 5:
        await asyncio.sleep(0.05)
    await until(lambda: all(len(members_of(lens)) == 3 for lens in three), "all know each other")
    asked = await three[1].post("/exports", {"workload_uid": "job", "metrics": "loss"})
    path = asked.json()["url"]
    before = await wait_for_export(three[0], path)
    content = (await answer_of(three[0], f"{path}/file")).text
    await three[1].stop()
    exports = three[1].daemon.config.data_dir / "exports"
    assert exports.is_dir()
    shutil.rmtree(exports)
    (listed,) = (await answer_of(three[0], "/api/v1/exports")).json()["exports"]
    assert {**listed, "state": "done"} == {**before, "points": 0, "bytes": 0, "finished": None, "file": listed["file"]}
    assert listed["state"] == "waiting"
    again = await wait_for_export(three[0], path)
    assert {**again, "finished": 0} == {**before, "finished": 0}
    assert (await answer_of(three[2], f"{path}/file")).text == content
    assert (await answer_of(three[2], path, "DELETE")).status_code == 204
    for lens in (three[0], three[2]):
        assert (await answer_of(lens, path)).status_code == 404, "nobody makes a removed one again"


def members_of(lens: RunningLens) -> Any:
    assert lens.daemon.assembly is not None
    assert lens.daemon.assembly.cluster is not None
    return lens.daemon.assembly.cluster.membership.members

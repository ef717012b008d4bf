"""DELETE of a workload and of a run: all of it goes, nothing else does, and what comes afterwards is stored anew."""

from __future__ import annotations

import pytest

from lens_core import Event, Evidence, Origin
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import ORIGIN, row

OTHER = Origin(workload_uid="workload-2", pod_uid="pod-uid-2", pod_name="other-0", namespace="team")
TABLES = ("subject", "stream", "row", "catalogue", "event", "evidence", "membership", "attempt", "block")


async def fill(asked: QueryApp) -> None:
    """Two runs of one workload and one of another, with an event and evidence each."""
    for origin, run in ((ORIGIN, "run-1"), (ORIGIN, "run-2"), (OTHER, "run-1")):
        await asked.spool.deliver(
            *[row(step, origin=origin, run_id=run) for step in range(20)],
            Event(origin=origin, type="training_started", run_id=run, data_source="log", event_time=1_700_000_000.0),
            Evidence(origin=origin, source="hook", run_id=run, facts={"run": run}, event_time=1_700_000_000.0),
        )


async def counts(asked: QueryApp, *tables: str) -> dict[str, int]:
    async with asked.store.database.reading() as connection:
        found = {}
        for table in tables:
            cursor = await connection.execute(f"select count(*) from lens_{table}".encode())
            found[table] = (await cursor.fetchone())[0]
        return found


async def delete(asked: QueryApp, path: str, **parameters: str) -> tuple[int, dict[str, object]]:
    answer = await asked.client.delete(f"/api/v1/workloads/{path}", params=parameters)
    return answer.status_code, answer.json()


async def test_a_workload_goes_and_another_stays(asked: QueryApp) -> None:
    await fill(asked)
    other = await asked.data("workload-2")
    status, answer = await delete(asked, "workload-1")
    assert status == 200
    assert answer == {
        "success": True,
        "workload_uid": "workload-1",
        "attempts_removed": 2,
        "rows_removed": 40,
        "events_removed": 2,
    }
    assert {origin.pod_uid for origin in await asked.store.origins("workload-2")} == {OTHER.pod_uid}
    assert (await asked.get("/workloads/workload-1")).status_code == 404
    assert await asked.data() == []
    assert await asked.data("workload-2") == other
    left = await counts(asked, *TABLES)
    assert left == {**left, "subject": 1, "stream": 1, "row": 20, "event": 1, "evidence": 1, "membership": 1}
    assert (await delete(asked, "workload-1"))[0] == 404
    assert (await delete(asked, "workload-2"))[0] == 200
    assert set((await counts(asked, *TABLES)).values()) == {0}


async def test_a_run_goes_and_the_others_stay(asked: QueryApp) -> None:
    await fill(asked)
    etag = (await asked.get("/workloads/workload-1")).headers["etag"]
    status, answer = await delete(asked, "workload-1/runs", run_id="run-1")
    assert (status, answer["rows_removed"], answer["events_removed"]) == (200, 20, 1)
    assert {point["run_id"] for point in await asked.data()} == {"run-2"}
    detail = await asked.get("/workloads/workload-1", **{})
    assert ([run["run_id"] for run in detail.json()["runs"]], detail.json()["rows"]) == (["run-2"], 20)
    assert detail.headers["etag"] != etag
    assert {event["run_id"] for event in (await asked.json("/workloads/workload-1/events"))["events"]} == {"run-2"}
    assert len(await asked.data("workload-2")) == 20
    assert (await delete(asked, "workload-1/runs", run_id="run-1"))[0] == 404
    assert (await counts(asked, "evidence"))["evidence"] == 2


@pytest.mark.parametrize("path", ["workload-1", "workload-1/runs"])
async def test_what_comes_afterwards_is_stored_anew(asked: QueryApp, path: str) -> None:
    await fill(asked)
    assert (await delete(asked, path, **({"run_id": "run-1"} if "/" in path else {})))[0] == 200
    for _ in range(4):  # as the delivery does: streams that are gone are looked up again
        answer = await asked.spool.send(row(100), Event(origin=ORIGIN, type="training_started", run_id="run-1"))
        if type(answer).__name__ == "Delivered":
            break
    assert [point["iteration"] for point in await asked.data(run_id="run-1")] == [100]
    assert len((await asked.json("/workloads/workload-1/events"))["events"]) >= 1


async def test_mistakes_delete_nothing(asked: QueryApp) -> None:
    await fill(asked)
    for path, parameters, expected in (
        ("workload-1/runs", {}, 400),
        ("workload-1", {"run_id": "run-1"}, 400),
        ("workload-1/runs", {"run_id": "%00"}, 404),
        ("workload-1/metrics/data", {}, 404),
        ("nothing", {}, 404),
        ("nothing/runs", {"run_id": "run-1"}, 404),
    ):
        assert (await delete(asked, path, **parameters))[0] == expected, path
    assert (await counts(asked, "row"))["row"] == 60

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sources.wandb_api import WandbApi

from lens_core import Pod
from lens_core.directory.directory import Directory
from lens_core.http.directory import restore_pods
from tests.plugins.sources.ingest_app import IngestApp, NotingGate

POD = {
    "uid": "1",
    "name": "a",
    "namespace": "ml",
    "node": "n1",
    "workloads": [{"uid": "w1", "name": "job"}],
    "devices": [{"kind": "gpu_id", "id": "0"}],
}


@pytest.fixture
def app(tmp_path: Path) -> IngestApp:
    return IngestApp(WandbApi, tmp_path, api_gate=NotingGate(), directory_file=tmp_path / "directory.json")


async def call(app: IngestApp, method: str, path: str, **request: Any) -> Any:
    async with app.client() as client:
        return await client.request(method, path, **request)


async def test_put_replaces_patch_adds_and_the_caches_show_it(app: IngestApp) -> None:
    answer = await call(app, "PUT", "/api/v1/directory", json={"pods": [POD]})
    assert answer.json() == {"success": True, "accepted": 1, "pods": 1}
    await call(app, "PATCH", "/v1/directory", json={"pods": [{**POD, "uid": "2", "name": "b", "devices": []}]})
    assert (await call(app, "GET", "/pods/cache")).json() == {"n1": {"gpu_id": {"0": ["a", "1"]}}}
    assert (await call(app, "GET", "/pods/workload/cache")).json() == {"a": [["job", "w1"]], "b": [["job", "w1"]]}
    app.state.directory.grace_seconds = 0
    await call(app, "PUT", "/api/v1/directory", json={"pods": []})
    assert (await call(app, "GET", "/api/v1/directory")).json() == {"pods": []}


async def test_pods_of_one_name_in_two_namespaces_are_not_merged(app: IngestApp) -> None:
    pods = [
        {**POD, "uid": uid, "namespace": namespace, "name": name, "workloads": [{"uid": f"w{uid}", "name": "job"}]}
        for uid, namespace, name in (("1", "red", "a"), ("2", "blue", "a"), ("3", "red", "b"))
    ]
    await call(app, "PUT", "/api/v1/directory", json={"pods": pods})
    assert (await call(app, "GET", "/pods/workload/cache")).json() == {
        "red/a": [["job", "w1"]],
        "blue/a": [["job", "w2"]],
        "b": [["job", "w3"]],
    }


async def test_what_was_put_goes_to_the_store_and_is_known_after_a_restart(app: IngestApp) -> None:
    await call(app, "PUT", "/api/v1/directory", json={"pods": [POD]})
    gate = app.state.api_gate
    assert isinstance(gate, NotingGate)
    assert [record.uid for record in gate.records if isinstance(record, Pod)] == ["1"]
    directory = Directory()
    assert app.state.directory_file is not None
    restore_pods(directory, app.state.directory_file)
    assert directory.workloads_by_pod() == {"a": [["job", "w1"]]}


@pytest.mark.parametrize("body", ["", "[]", '{"pods": [{"uid": "1"}]}', '{"pods": [{"name": "a", "workload": []}]}'])
async def test_bad_documents_change_nothing(app: IngestApp, body: str) -> None:
    await call(app, "PUT", "/api/v1/directory", json={"pods": [POD]})
    answer = await call(app, "PUT", "/api/v1/directory", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "RequestParameterInvalid")
    assert len(app.state.directory.pods()) == 1


async def test_store_that_cannot_take_it_changes_nothing(app: IngestApp) -> None:
    gate = app.state.api_gate
    assert isinstance(gate, NotingGate)
    gate.closed = True
    app.state.directory.grace_seconds = 0
    answer = await call(app, "PUT", "/api/v1/directory", json={"pods": [POD]})
    assert answer.status_code == 503
    assert app.state.directory.pods() == []


async def test_changing_needs_an_admin(app: IngestApp) -> None:
    token = app.tokens.create_token("someone", "read")
    headers = {"Authorization": f"Bearer {token}"}
    assert (await call(app, "PUT", "/api/v1/directory", json={"pods": []}, headers=headers)).status_code == 403
    assert (await call(app, "GET", "/api/v1/directory", headers=headers)).status_code == 200

"""Every query of the shipped dashboards: Infinity's asked of the API, the others of a Prometheus that scrapes Lens."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.end_to_end.prometheus_world import World, scraping
from tests.exposition import metric_names
from tests.lens_core.http.query_app import QueryApp
from tests.lens_core.http.test_grafana import SEED_BODY, fill, post
from tests.plugins.sources.wandb_hook.environments import GRAFANA_DATA, node_packages
from tests.waiting import until_answer

FOLDER = Path(__file__).parents[3] / "dashboards"
BOARDS = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
VARIABLES = {"workload": "workload-1", "metric:csv": "loss,accuracy", "search": "", "__timeFrom": "1700000000000"}
VARIABLES["__timeTo"] = "1700009000000"
_TO_FRAMES = """
const { toDataFrame } = require("@grafana/data");
const items = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(items.map((item) => {
  const frame = toDataFrame(item);
  const fields = frame.fields.map((field) => [field.name, field.type, field.values.length]);
  return { refId: frame.refId, length: frame.length, fields };
})));
"""


def infinity_queries(node: Any) -> Iterator[dict[str, Any]]:
    """All queries of a dashboard that have a URL: panels, variables, annotations."""
    if isinstance(node, dict):
        if "url" in node and "root_selector" in node:
            yield node
        for value in node.values():
            yield from infinity_queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from infinity_queries(value)


def expressions(node: Any) -> Iterator[str]:
    """All PromQL of a dashboard."""
    if isinstance(node, dict):
        if isinstance(node.get("expr"), str):
            yield node["expr"]
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def filled(url: str) -> str:
    """The URL with the variables' values in it."""
    return re.sub(r"\$\{([^}]+)\}", lambda found: VARIABLES[found[1]], url)


@pytest.mark.parametrize("name", ["training.json", "workloads.json"])
async def test_every_query_of_infinity_has_rows_with_its_columns(asked: QueryApp, name: str) -> None:
    await fill(asked)
    queries = list(infinity_queries(BOARDS[name]))
    assert queries
    for query in queries:
        response = await asked.client.get(filled(query["url"]))
        assert response.status_code == 200, response.text
        rows = response.json()[query["root_selector"]] if query["root_selector"] else response.json()
        assert rows, query["url"]
        for column in query["columns"]:
            assert column["selector"] in rows[0], (query["url"], column)
            if column["type"] == "timestamp_epoch" and rows[0][column["selector"]] is not None:
                assert rows[0][column["selector"]] > 1e12, "not milliseconds"


def test_dashboards_can_be_provisioned() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS) == 3
    for board in BOARDS.values():
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids))
        used = set(re.findall(r"\$\{(\w+)[:}]", json.dumps(board))) - {"__timeFrom", "__timeTo", "__data"}
        assert used <= {variable["name"] for variable in board["templating"]["list"]}
    sources = yaml.safe_load((FOLDER / "provisioning/datasources/lens.yaml").read_text())
    assert {source["type"] for source in sources["datasources"]} == {"yesoreyeram-infinity-datasource", "prometheus"}
    assert yaml.safe_load((FOLDER / "provisioning/dashboards/lens.yaml").read_text())["providers"]


def test_prometheus_queries_name_metrics_that_exist() -> None:
    exposed = set(metric_names())
    for expression in expressions(BOARDS["lens.json"]):
        names = set(re.findall(r"\b(?:lens|log_analysis|training_performance)_\w+", expression))
        assert names
        assert names <= exposed


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's prometheus is not installed")
async def test_a_real_prometheus_understands_every_query(asked: QueryApp, tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        await asked.client.get("/api/v1/")
        prometheus = await asyncio.to_thread(world.prometheus("p", scraping(asked.url, {})).start)
        for expression in expressions(BOARDS["lens.json"]):
            await asyncio.to_thread(prometheus.query, expression)
        async with httpx.AsyncClient(timeout=240) as client:
            query = {"query": "lens_http_requests_total"}
            await until_answer(
                lambda: client.get(f"{prometheus.url}/api/v1/query", params=query),
                lambda found: found.json()["data"]["result"],
            )
    finally:
        world.stop()


@pytest.mark.slow("fetches Grafana's own packages with npm")
@pytest.mark.skipif(shutil.which("npm") is None, reason="Debian's npm is not installed")
async def test_grafana_makes_frames_of_every_shape(asked: QueryApp) -> None:
    folder = await asyncio.to_thread(node_packages, GRAFANA_DATA)
    await fill(asked)
    payload = {"workload_uid": "workload-1", "run_id": "r1"}
    targets = [{"target": "loss", "refId": kind, "type": kind, "payload": payload} for kind in ("table", "frame")]
    items = await post(asked, "/query", SEED_BODY) + await post(asked, "/query", {"targets": targets})
    items.append(await asked.json("/workloads/workload-1/metrics/rows", metrics="loss"))
    items.append((await asked.json("/workloads/workload-1/metrics/data", metrics="loss"))["data"])
    done = await asyncio.to_thread(
        subprocess.run,
        ["node", "-e", _TO_FRAMES],
        input=json.dumps(items).encode(),
        stdout=subprocess.PIPE,
        check=True,
        cwd=folder,
        timeout=240,
    )
    frames = json.loads(done.stdout)
    assert [frame["length"] for frame in frames] == [5, 5, 5, 5, 5, 5, 10, 10]
    for frame in frames[:6]:
        assert frame["fields"][0][1] == "time"
        assert "number" in [kind for _, kind, _ in frame["fields"]]
        assert {length for _, _, length in frame["fields"]} == {5}
    assert [frame["refId"] for frame in frames[:6]] == ["A", "A", "B", "B", "table", "frame"]

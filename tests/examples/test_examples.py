"""The example distributions: installed by pip into a fresh environment, used, uninstalled and gone."""

from __future__ import annotations

import json

import httpx
import pytest

from lens_core.testing import HttpReceiver, until
from tests.fresh_environment import CHECKOUT, FreshEnvironment, agent_wheel, build_wheel

pytestmark = pytest.mark.slow("installs every example into an environment of its own")

EXAMPLES = CHECKOUT / "examples"
DETECTOR = EXAMPLES / "lens-acme-detector"
SINK = EXAMPLES / "lens-example-sink"
SOURCE = EXAMPLES / "lens-statsd-source"
COLLECTOR = EXAMPLES / "lens-checkpoints-collector"
ANALYZER = EXAMPLES / "lens-budget-analyzer"
ALL = {"acme": DETECTOR, "influx": SINK, "statsd": SOURCE, "checkpoints": COLLECTOR, "budget": ANALYZER}

CONFIGURATION = """
sinks:
  rows: {type: jsonl, path: rows.jsonl}
  influx: {url: "http://influx:8086", bucket: training, token: "${INFLUX_TOKEN}", required: false}
pipelines:
  training: {from: [wandb_api], to: [rows, influx]}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    folder = tmp_path_factory.mktemp("examples")
    made = FreshEnvironment(folder / "environment")
    wheels = [agent_wheel()]
    for source in ALL.values():
        (folder / source.name).mkdir()
        wheels.append(build_wheel(source, folder / source.name))
    made.install(*wheels)
    (made.folder / "lens.yaml").write_text(CONFIGURATION)
    return made


def test_they_are_listed(environment: FreshEnvironment) -> None:
    plugins = environment.plugins()
    acme, influx = plugins["acme@lens-acme-detector"], plugins["influx@lens-example-sink"]
    assert (acme["state"], acme["version"]) == (influx["state"], influx["version"]) == ("loaded", "1.0.0")
    assert {name for name in plugins if not name.endswith("@lens-agent")} == {
        f"{name}@{folder.name}" for name, folder in ALL.items()
    }
    settings = {setting["name"]: setting for setting in influx["components"][0]["settings"]}
    assert settings["url"]["required"] is True
    assert settings["bucket"]["documentation"] == "the bucket that rows are written to"


def test_a_configuration_may_use_them(environment: FreshEnvironment) -> None:
    out = environment.lens("validate", "lens.yaml", INFLUX_TOKEN="x")
    assert out.startswith("lens.yaml: valid (1 source, 2 sinks, ") or "valid" in out
    drawn = environment.lens("graph", "lens.yaml", INFLUX_TOKEN="x")
    assert "└─▶ influx (optional)" in drawn
    schema = json.loads(environment.lens("schema"))
    assert "sink.influx" in schema["$defs"]
    wrong = CONFIGURATION.replace("bucket: training", "buket: training")
    (environment.folder / "wrong.yaml").write_text(wrong)
    assert "sinks.influx: unknown key buket; did you mean bucket?" in environment.lens(
        "validate", "wrong.yaml", code=78, INFLUX_TOKEN="x"
    )


def test_the_detector_reads_its_lines(environment: FreshEnvironment) -> None:
    (environment.folder / "train.log").write_text("[acme] step 10/500 | loss: 2.31 | lr: 1e-4\n")
    read = json.loads(environment.lens("explain", "--json", "train.log"))
    assert (read["kind"], read["framework"]) == ("metric", "acme")
    assert read["values"]["lm_loss"] == 2.31


async def test_they_are_used_in_a_pipeline(environment: FreshEnvironment) -> None:
    """A line of Acme's goes in; the sink sends the row that the detector made of it."""
    line = {"record": "log_line", "text": "[acme] step 10/500 | loss: 2.31 | lr: 1e-4", "event_time": 1700000000.0}
    envelope = {"version": 1, "origin": {"workload_uid": "job", "pod_name": "job-0"}, "records": [line]}
    async with HttpReceiver(status=204) as influx:
        text = CONFIGURATION.replace("http://influx:8086", influx.url).replace("[wandb_api]", "[records_api]")
        (environment.folder / "running.yaml").write_text(text)
        with environment.daemon("running.yaml", INFLUX_TOKEN="x") as url:
            async with httpx.AsyncClient(timeout=240) as client:
                answer = await client.post(f"{url}/api/v1/records", json=envelope)
            assert answer.json() == {"success": True, "accepted": 1, "rejected": []}
            await until(lambda: bool(influx.received), "the row arrives at the sink")
    written = influx.received[0].body.decode()
    assert written.startswith("training,workload=job,")
    assert "step=10i" in written
    assert "lm_loss=2.31" in written
    rows = [json.loads(row) for row in (environment.folder / "rows.jsonl").read_text().splitlines()]
    assert [row["framework"] for row in rows if row["record"] == "detection"] == ["acme"]


@pytest.mark.parametrize("name", ALL)
def test_they_are_in_order(environment: FreshEnvironment, name: str) -> None:
    assert environment.lens("plugin", "check", name, "--strict").endswith("\nIn order\n")


def test_their_own_tests_pass(environment: FreshEnvironment) -> None:
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W", "error"]
    arguments += ["-o", "asyncio_default_fixture_loop_scope=function"]
    folders = [str(example / "tests") for example in ALL.values()]
    printed = environment.python(*arguments, "--rootdir", str(EXAMPLES), *folders, "-v")
    assert not [example for example in ALL.values() if f"{example.name}/tests/" not in printed]
    assert " passed" in printed


def test_what_is_uninstalled_is_gone(environment: FreshEnvironment) -> None:
    environment.uninstall(*(folder.name for folder in ALL.values()))
    assert not [name for name in environment.plugins() if not name.endswith("@lens-agent")]
    out = environment.lens("validate", "lens.yaml", code=78, INFLUX_TOKEN="x")
    assert "sinks.influx: there is no sink plugin 'influx'" in out

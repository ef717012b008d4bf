"""The promise of docs/plugins.md: wheels that were built against plugin API 1.0 work with the present lens-agent."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.fresh_environment import FreshEnvironment, agent_wheel

pytestmark = pytest.mark.slow("installs the wheels of API 1.0 into an environment of its own")

OLD = Path(__file__).parent / "wheels_1_0"
WHEELS = sorted(OLD.glob("*.whl"))
TESTS = sorted((OLD / "tests").glob("*.py"))
PLUGINS = {
    "acme@lens-acme-detector",
    "checkpoints@lens-checkpoints-collector",
    "influx@lens-example-sink",
    "statsd@lens-statsd-source",
}
CONFIGURATION = """
sources:
  statsd: {listen: "127.0.0.1:0"}
collectors:
  checkpoints: {folder: /checkpoints, interval_seconds: 60}
sinks:
  influx: {url: "http://influx:8086", bucket: training}
pipelines:
  training: {from: [statsd, checkpoints], to: [influx]}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    """The present lens-agent and the old wheels, in a fresh environment."""
    made = FreshEnvironment(tmp_path_factory.mktemp("wheels_1_0") / "environment")
    made.install(agent_wheel(), *WHEELS)
    return made


def test_nobody_has_touched_them() -> None:
    sums = {name: digest for digest, name in (line.split() for line in (OLD / "SHA256SUMS").read_text().splitlines())}
    files = {str(path.relative_to(OLD)): hashlib.sha256(path.read_bytes()).hexdigest() for path in (*WHEELS, *TESTS)}
    assert files == sums


def test_they_are_loaded_and_a_configuration_may_use_them(environment: FreshEnvironment) -> None:
    plugins = environment.plugins()
    assert {name: plugin["state"] for name, plugin in plugins.items() if name in PLUGINS} == dict.fromkeys(
        PLUGINS, "loaded"
    )
    (environment.folder / "lens.yaml").write_text(CONFIGURATION)
    assert "valid" in environment.lens("validate", "lens.yaml")


def test_what_they_were_published_with_passes(environment: FreshEnvironment) -> None:
    folder = environment.folder / "tests"
    shutil.copytree(OLD / "tests", folder)
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W", "error"]
    # What goes may warn; it must work all the same.
    arguments += ["-W", "default::DeprecationWarning", "-o", "asyncio_default_fixture_loop_scope=function"]
    assert " passed" in environment.python(*arguments, "--rootdir", str(folder), str(folder))
    assert len(TESTS) == len(WHEELS)

"""The pages for people with a task: their commands run against a real daemon, their files are valid."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import helm_python
import httpx
import psycopg
import pytest
import yaml
from lens_plugins.sinks.postgresql.metrics import StoreMetrics
from lens_plugins.sources.wandb_api.metrics import WandbMetrics

from lens_core.base.self_metrics import SelfMetrics
from lens_core.cli import checks, checks_symptoms
from tests.docs.pages import DOCS, blocks, lead_curl, port_of, run_console
from tests.end_to_end.conftest import make_lens
from tests.end_to_end.running_lens import RunningLens

__all__ = ["make_lens"]


@pytest.fixture
def running(make_lens: Callable[..., RunningLens], postgres_dsn: str) -> RunningLens:
    """A daemon on the session's PostgreSQL."""
    return make_lens(f'sinks:\n  store: {{type: postgresql, dsn: "{postgres_dsn}"}}\n').start()


def test_the_first_run_is_as_the_page_says(running: RunningLens, tmp_path: Path) -> None:
    folder = tmp_path / "shell"
    folder.mkdir()
    (folder / "train.py").write_text(blocks("first_run.md", "python")[0])
    environ = {
        "LENS_URL": running.url,
        "PRIMUS_LENS_API_BASE_URL": f"{running.url}/api/v1",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
    }
    _, _, train, look, configure = blocks("first_run.md", "console")
    run_console(train, folder, environ)
    running.drained()
    lead_curl(folder, "127.0.0.1:8080", port_of(running.url))
    run_console(look, folder, environ)
    run_console(configure, folder, environ)


def test_the_commands_of_troubleshooting_work(running: RunningLens, tmp_path: Path) -> None:
    for block in blocks("troubleshooting.md", "console"):
        run_console(block, tmp_path, {"LENS_URL": running.url})


def test_tokens_and_proxies_are_as_the_security_page_says(
    make_lens: Callable[..., RunningLens], tmp_path: Path
) -> None:
    lens = make_lens(f"sinks: {{out: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}}}\n").start()
    for block in blocks("security.md", "console"):
        run_console(block, tmp_path, {"LENS_URL": lens.url, "LENS_DATA_DIR": str(lens.data_dir)})


def test_upgrading_begins_with_a_valid_file(tmp_path: Path) -> None:
    for block in blocks("upgrade_from_primus_lens.md", "console"):
        run_console(block, tmp_path)
    for code in blocks("upgrade_from_primus_lens.md", "python"):
        said = f"{code}\nimport wandb\nprint(wandb._primus_lens_patched)"
        done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=240, check=True)
        assert done.stdout == "True\n"


def test_the_queries_of_the_upgrade_page_ask_for_metrics_that_exist() -> None:
    (text,) = blocks("upgrade_from_primus_lens.md", "text")
    metrics = SelfMetrics()
    metrics.group(StoreMetrics)
    metrics.group(WandbMetrics).request_duration.labels("metrics").observe(0.1)
    exposed = metrics.exposition().decode()
    asked = set(re.findall(r"wandb_\w+", text))
    assert len(asked) == 5
    assert not [name for name in asked if not re.search(rf"^(?:# TYPE )?{name}[ {{]", exposed, flags=re.M)]


def test_the_statements_of_the_storage_page_can_be_asked(running: RunningLens, postgres_dsn: str) -> None:
    row = {"workload_uid": "abc-123", "metrics": [{"name": "loss", "value": 0.5, "step": 1000}]}
    assert running.post("/wandb/metrics", row).status_code == 200
    running.drained()
    (text,) = blocks("storage.md", "sql")
    with psycopg.connect(postgres_dsn) as connection:
        answers = [connection.execute(query.encode()).fetchall() for query in text.split(";") if query.strip()]
    assert [len(rows) for rows in answers] == [1, 1]
    assert answers[0][0][0] == 1000


def test_a_panel_of_the_grafana_page_can_be_asked(running: RunningLens) -> None:
    (text,) = blocks("grafana.md", "text")
    values = {"${workload}": "my-run", "${metric:csv}": "loss,lr", "${__timeFrom}": "0", "${__timeTo}": "1000"}
    for variable, value in values.items():
        assert variable in text
        text = text.replace(variable, value)
    answer = httpx.get(running.url + text.strip(), timeout=240)
    assert (answer.status_code, answer.json()["data"]) == (200, [])


def test_prometheus_takes_its_file_of_the_page(tmp_path: Path) -> None:
    (text,) = [text for text in blocks("remote_write.md", "yaml") if "prometheus.yml" in text]
    (tmp_path / "prometheus.yml").write_text(text)
    run_console("$ promtool check config prometheus.yml\n SUCCESS\n", tmp_path)


def test_every_symptom_names_a_check_and_every_check_a_symptom() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    sections = re.split(r"^### ", text, flags=re.M)[1:]
    named = set()
    for section in sections:
        checked = re.findall(r"^`lens doctor`: (.*?)\n\n|^`lens doctor`: (.*)\Z", section + "\n\n", flags=re.M | re.S)
        if "`lens doctor`: nothing" in section:
            continue  # the mistake is in the question, not in Lens
        assert checked, section.splitlines()[0]
        named |= set(re.findall(r"\*\*([a-z_]+(?: [a-z_]+)?)", checked[0][0] or checked[0][1]))
    source = Path(checks.__file__).read_text() + Path(checks_symptoms.__file__).read_text()
    known = {step.split(" {")[0] for step in re.findall(r'(?:Finding\(\s*|step = )f?"([a-z][^"]*)"', source)}
    known |= {"sink"}
    assert {name.strip() for name in named} <= known | {"source logs", "source remote_write"}
    assert known - {name.strip() for name in named} <= {"token", "probe", "sources"}


def test_the_charts_values_of_the_page_are_taken() -> None:
    (values,) = blocks("instrument_a_cluster.md", "yaml")
    chart = DOCS.parent / "deploy/helm/lens"
    with helm_python.Chart.load(chart) as loaded:
        rendered = loaded.render(yaml.safe_load(values), name="lens", namespace="lens")
    texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
    kinds = {document["kind"] for text in texts for document in yaml.safe_load_all(text) if document}
    assert {"StatefulSet", "DaemonSet", "CronJob", "Service", "ConfigMap"} <= kinds

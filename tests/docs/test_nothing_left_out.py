"""Blocks of pages that no test runs: one table for commands, one for everything else, and both are exact.

Begins after all others (tests/side_by_side.py) and waits for their end, because it looks at which console blocks ran.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import test_cluster_page as cluster
from tests.docs.pages import PAGES, ROOT, blocks_of, blocks_that_ran, ended_tests
from tests.durations import preparing
from tests.end_to_end.running_lens import wait_for

HERE = Path(__file__).parent
# Page → the first command of a block that no test gives → why not.
NOT_RUN = {
    "README.md": {
        "scripts/demo": "fetches an environment and waits for somebody to look; `lens demo`, its end, is tested",
        "scripts/test": "is what runs this test",
    },
    "benchmarks/README.md": {
        "python -m benchmarks.ingest": "each takes minutes of a machine that does nothing else",
    },
    "docs/instrument_a_cluster.md": {
        "docker build": "takes minutes, and a registry or stand-ins for it; scripts/check-image gives these commands",
    },
}
# Page and first words of a block that is neither commands, code nor YAML → the test that uses it, or why none does.
OTHERS = {
    ("docs/alerting.md", "time() - lens:"): "tests/docs/test_alerting_page.py",
    ("docs/clickhouse.md", "select step"): "no server of ClickHouse is in the tests of pages; its own tests ask it",
    ("docs/cluster.md", "docker compose"): "no Docker is here; tests/deploy/test_compose.py runs what the services run",
    ("docs/cluster.md", "jetstream {"): "tests/nats_servers.py writes it for its servers",
    ("docs/cluster.md", "pip install"): "no package index has Lens yet; the tests install the extra from here",
    ("docs/diagnosis.md", "INFO - Reported log content"): "what DLRover logs, for people to compare with",
    ("docs/diagnosis.md", "{"): "an answer, shortened; tests/lens_core/http/test_diagnosis.py looks at whole ones",
    ("docs/findings.md", "[INPUT]"): "no package index has Fluent Bit; tests/plugins/device_errors posts what it posts",
    ("docs/grafana.md", "/api/v1/workloads/${workload}"): "tests/docs/test_task_pages.py",
    ("docs/logs.md", "[OUTPUT]"): "no package index has Fluent Bit; test_logs.py of the sources posts what it posts",
    ("docs/logs.md", "destination lens"): "tests/plugins/sources/test_log_shippers.py",
    ("docs/logs.md", "template(name="): "Debian's rsyslog has no omhttp; examples/rsyslog does without and is tested",
    ("docs/opentelemetry.md", "OTEL_EXPORTER_OTLP_ENDPOINT="): "tests/docs/test_opentelemetry_page.py",
    ("docs/plugin_cookbook.md", "[project.optional-dependencies]"): "tests/docs/test_plugin_pages.py",
    ("docs/plugins.md", "[project]"): "tests/docs/test_installing_pages.py",
    ("docs/slurm.md", "#!/bin/sh"): "tests/docs/test_slurm_page.py",
    ("docs/storage.md", "SELECT"): "tests/docs/test_task_pages.py",
    ("docs/trackers.md", "[project.entry-points."): "the test_echoes.py of the hook installs such an entry point",
    (
        "docs/trackers.md",
        "{",
    ): "an answer, shortened; test_echoes.py of the postgresql sink looks at whole ones",
    ("docs/upgrade_from_primus_lens.md", "rate("): "tests/docs/test_task_pages.py",
    ("docs/write_a_detector.md", "[acme] step"): "tests/docs/test_plugin_pages.py",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def is_whole(session: pytest.Session) -> bool:
    """Whether all tests of this folder are among those that run now."""
    collected = {item.path for item in session.items}
    options = session.config.option
    return not options.keyword and not options.markexpr and set(HERE.glob("test_*.py")) <= collected


def test_every_console_block_was_run(request: pytest.FixtureRequest) -> None:
    if not is_whole(request.session) or cluster.MISSING:
        pytest.skip(f"does not apply: only some of the pages' tests run. {cluster.MISSING}")
    others = {item.nodeid for item in request.session.items if item.path.parent == HERE and item.path != request.path}
    with preparing():
        wait_for(lambda: others <= ended_tests(), 800, "the end of the pages' other tests")
    ran = blocks_that_ran()
    left_out = {
        (name_of(page), block) for page in PAGES for block in blocks_of(page.read_text(), "console") if block not in ran
    }
    explained = {
        (page, begin): [block for where, block in left_out if where == page and block.startswith(f"$ {begin}")]
        for page, begins in NOT_RUN.items()
        for begin in begins
    }
    assert {key: len(found) for key, found in explained.items()} == dict.fromkeys(explained, 1)
    assert left_out == {(page, found[0]) for (page, _), found in explained.items()}


def other_blocks() -> list[tuple[str, str]]:
    """Page and text of every block of another language."""
    found = []
    for page in PAGES:
        if page.name == "commands.md":
            continue  # made of what the commands say
        text = page.read_text()
        languages = set(re.findall(r"^ *```(\w+)$", text, flags=re.M)) - {"console", "python", "yaml"}
        found += [(name_of(page), block) for language in sorted(languages) for block in blocks_of(text, language)]
    return found


def test_every_other_block_is_in_the_table() -> None:
    blocks = other_blocks()
    known = {
        (page, begin): [block for where, block in blocks if where == page and block.startswith(begin)]
        for page, begin in OTHERS
    }
    assert {key: len(found) for key, found in known.items()} == dict.fromkeys(OTHERS, 1)
    assert len(blocks) == len(OTHERS)
    for (page, _), why in OTHERS.items():
        if why.startswith("tests/") and " " not in why:
            assert Path(page).name in (ROOT / why).read_text(), f"{why} does not name {page}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is_and_none_is_indented(page: Path) -> None:
    text = page.read_text()
    assert len(re.findall(r"^ *```\w+$", text, flags=re.M)) == len(re.findall(r"^ *```$", text, flags=re.M))
    outside = re.sub(r"^ *```\w+\n.*?^ *```$", "", text, flags=re.M | re.S)
    assert re.findall(r"(?<=\n\n) {4}\w.*", outside) == []

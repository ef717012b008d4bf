"""Every block of every page: commands and options that exist, files that are valid, code that is tried.

The pages' own tests run console blocks and use the code; this one leaves no block out, whoever adds a page. Whether
every console block was run is seen by test_nothing_left_out.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from lens_core.cli import cli
from lens_core.config.loading import SECTIONS, parse_config
from lens_core.config.settings import Config
from lens_core.model.directory_document import pods_of_object
from lens_core.plugin_host.host import PluginHost
from tests.docs.pages import DOCS, PAGES, ROOT, blocks

# Whose code is run, and by which test; `python` blocks of other pages fail below.
RUN_BY = {
    "add_a_collector.md": "test_plugin_pages.py",
    "detectors.md": "test_logs_pages.py",
    "diagnosis.md": "../plugins/collectors/diagnosis/test_examples.py",
    "first_run.md": "test_task_pages.py",
    "hook.md": "../plugins/sources/wandb_hook/test_switches.py",
    "plugin_cookbook.md": "test_plugin_pages.py",
    "plugins.md": "test_configuration_and_plugins.py",
    "trackers.md": "../plugins/sources/wandb_hook/test_echoes.py",
    "upgrade_from_primus_lens.md": "test_task_pages.py",
    "write_a_detector.md": "test_plugin_pages.py",
    "write_a_sink.md": "test_plugin_pages.py",
    "write_a_source.md": "test_plugin_pages.py",
}
# YAML that is not for Lens: the page's own test, or whose file it is.
OTHERS_YAML = {
    "alerting.md": "Prometheus' own file, run by test_alerting_page.py",
    "clickhouse.md": "Compose's own file, and the chart's values",
    "cluster.md": "the chart's values",
    "instrument_a_cluster.md": "the chart's values",
    "opentelemetry.md": "the Collector's own file, and one of Lens; test_opentelemetry_page.py",
    "remote_write.md": "Prometheus' own file",
}
_COMMAND = re.compile(
    r"(?:^|[|&;(]|--|\bdo\b|`)\s*(?:\w+=\S*\s+)*(?:\./|\.venv/bin/)?(lens(?:\s[^|&;)`\n]*)?)(?=$|[|&;)`])", re.M
)


def code_of(text: str) -> Iterator[str]:
    """Fenced blocks that are no files, indented ones, and commands within a sentence."""
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, flags=re.M | re.S):
        if language in ("", "console", "sh", "text"):
            yield re.sub(r"^ *(?:\$ )?", "", block, flags=re.M)
    outside = re.sub(r"^ *```\w*\n.*?^ *```", "", text, flags=re.M | re.S)
    yield "\n".join(line[4:] for line in outside.splitlines() if line.startswith("    "))
    yield "\n".join(found.split("\\")[0] for found in re.findall(r"(?<!`)`(lens [^`\n]+)`(?!`)", outside))


def lens_commands(text: str) -> list[str]:
    """The `lens …` commands of a page's blocks, each with its arguments."""
    return [found[1].strip() for code in code_of(text) for found in _COMMAND.finditer(code)]


def wrong_with(command: str) -> str:
    """Why a command could not be given; '' when it could."""
    found: click.Command = cli
    arguments = shlex.split(command.removesuffix(" ..."), comments=True)[1:]
    # With the settings that `lens` itself has: click keeps the help option of whoever asks first.
    context = click.Context(cli, info_name="lens", **cli.context_settings)
    while arguments and isinstance(found, click.Group) and not arguments[0].startswith(("-", "[", "<")):
        child = found.get_command(context, arguments[0])
        if child is None:
            return f"there is no command {arguments[0]}"
        context = click.Context(child, parent=context, info_name=arguments[0])
        found, arguments = child, arguments[1:]
    try:
        found.make_parser(context).parse_args(list(arguments))
    except click.UsageError as error:
        # A sentence may name an option without what follows it.
        return "" if "requires an argument" in str(error) else error.format_message()
    return ""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "commands.md"], ids=lambda page: page.name)
def test_every_command_of_lens_exists_with_its_options(page: Path) -> None:
    wrong = {command: why for command in lens_commands(page.read_text()) if (why := wrong_with(command))}
    assert wrong == {}


def test_wrong_commands_are_found() -> None:
    text = "```console\n$ lens plugin new acme --kidn sink\n$ echo x | lens explian --json\n```\n\n    lens up\n"
    assert lens_commands(text) == ["lens plugin new acme --kidn sink", "lens explian --json", "lens up"]
    assert [wrong_with(command)[:13] for command in lens_commands(text)] == [
        "No such optio",
        "there is no c",
        "",
    ]


def test_the_plugin_of_the_readme_is_a_plugin(lens_plugins_dir: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    (lens_plugins_dir / "acme_of_readme.py").write_text(code)
    (plugin,) = PluginHost.load().loaded_from("acme_of_readme")
    assert (plugin.state, [found.name for found in plugin.components]) == ("loaded", ["acme"])


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == DOCS], ids=lambda page: page.name)
def test_all_code_is_run(page: Path) -> None:
    if blocks(page.name, "python"):
        test = Path(__file__).parent / RUN_BY[page.name]
        assert page.name in test.read_text() or f"docs/{page.stem}" in test.read_text()


def arguments_of(content: Any) -> list[str]:
    """The arguments of all containers in an object of Kubernetes; the image's entry point is `lens`."""
    if isinstance(content, list):
        return [found for item in content for found in arguments_of(item)]
    if not isinstance(content, dict):
        return []
    return [shlex.join(content["args"])] if "args" in content else arguments_of([*content.values()])


def valid_for_lens(text: str, folder: Path) -> Config:
    """Parse a configuration or a part of one; sinks that another part of the page defines are added."""
    content: dict[str, Any] = yaml.safe_load(text)
    assert set(content) <= set(SECTIONS), sorted(content)
    sinks = content.setdefault("sinks", {})
    for pipeline in content.get("pipelines", {}).values():
        for name in pipeline.get("to", []):
            sinks.setdefault(name, {"type": "jsonl", "path": "rows.jsonl"})
    if not sinks:
        sinks["rows"] = {"type": "jsonl", "path": "rows.jsonl"}
    variables = {"DB_PASSWORD": "x", "INFLUX_TOKEN": "x", "SLACK_WEBHOOK_URL": "https://chat"}
    variables |= {"DATABASE_URL": "postgresql://lens@db/lens", "CLICKHOUSE_URL": "clickhouse://lens:x@ch:8123/lens"}
    return parse_config(yaml.safe_dump(content), "page", PluginHost.load(), variables, folder=folder)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == DOCS], ids=lambda page: page.name)
def test_every_yaml_block_is_valid_for_its_reader(page: Path, tmp_path: Path) -> None:
    for name in ("certificate.pem", "key.pem"):
        (tmp_path / name).write_text("")
    for text in blocks(page.name, "yaml"):
        content = yaml.safe_load(text)
        if "apiVersion" in content:
            kubernetes_validate.validate(content, "1.33", strict=True)
            assert [wrong_with(f"lens {arguments}") for arguments in arguments_of(content)] == [""]
        elif "pods" in content:
            assert pods_of_object(content)
        elif page.name == "write_a_sink.md":
            continue  # of a plugin that only the page's own test has
        elif set(content) <= set(SECTIONS):
            assert valid_for_lens(text, tmp_path).pipelines
        else:
            assert page.name in OTHERS_YAML

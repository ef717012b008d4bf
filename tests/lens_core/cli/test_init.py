"""`lens init`: what it writes is valid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lens_core import Batch, Collector, Delivered, Detector, Record, Secret, Sink, Source
from lens_core.cli import main
from lens_core.config.first_file import first_file
from lens_core.config.loading import Config, parse_config
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import host_of


class Rows(Source):
    """Rows over HTTP."""

    name = "wandb_api"


class Watched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class Files(Source):
    """Files that grow."""

    name = "files"
    Settings = Watched


class Copies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    copies: str = "none"


class RemoteWrite(Source):
    name = "remote_write"
    Settings = Copies


class Pull(Collector):
    name = "pull"
    Settings = Watched

    async def collect(self) -> Sequence[Record]:
        return ()


class Dsn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dsn: Secret | None = None


class Database(Sink):
    name = "postgresql"
    Settings = Dsn

    async def send(self, batch: Batch) -> Delivered:
        return Delivered()


class Lines(Database):
    name = "jsonl"


class Jax(Detector):
    name = "jax"


HOST = host_of(Rows, Files, RemoteWrite, Pull, Database, Lines, Jax)


def read(text: str, **environ: str) -> Config:
    return parse_config(text, "lens.yaml", HOST, {"HOME": "/", **environ}, folder=Path())


def test_the_first_file_means_what_no_file_means() -> None:
    written, nothing = read(first_file(HOST)), read("")
    named = {name: msgspec.structs.replace(source, written=True) for name, source in nothing.sources.items()}
    assert written == msgspec.structs.replace(nothing, sources=named)
    assert written.notices == []


def test_the_primus_variant_listens_for_everybody() -> None:
    config = read(first_file(HOST, primus=True), DB_PASSWORD="secret")
    assert config.server.listen == "0.0.0.0:8080"
    assert config.server.metrics_listen == "0.0.0.0:9090"
    assert config.server.open_ingest
    settings: Any = config.sinks["store"].settings
    assert config.sources["remote_write"].settings == Copies("only")
    assert settings.dsn.reveal() == "postgresql://lens:secret@postgres:5432/lens"


def test_the_primus_variant_of_what_is_installed_does_what_the_page_says() -> None:
    host = PluginHost.load()
    text = first_file(host, primus=True)
    config = parse_config(text, "lens.yaml", host, {"HOME": "/", "DB_PASSWORD": "p@ss"}, folder=Path())
    series, tables = config.sinks["series"], config.collectors["directory_postgresql"]
    assert (series.type, series.required) == ("prometheus", False)
    assert series.settings.url == "http://vminsert:8480/insert/0/prometheus/api/v1/write"
    assert tables.settings.dsn.reveal() == "postgresql://lens:p%40ss@postgres:5432/primus_lens"
    assert config.sources["remote_write"].settings.copies == "only"
    assert config.pipelines["default"].sinks == ["store", "series"]
    page = (Path(__file__).parents[3] / "docs" / "upgrade_from_primus_lens.md").read_text()
    for name in re.findall(r"\$\{(\w+)", "".join(line for line in text.splitlines() if not line.startswith("#"))):
        assert f"`{name}`" in page


def test_what_stands_in_comments_is_right_too() -> None:
    text = re.sub(r"^(\s*)# (\s*\w+:(?: |$))", r"\1\2", first_file(HOST), flags=re.M)
    text = text.replace("…", "x").replace("Lens. Check", "# Lens. Check")
    lines = [
        line for line in text.splitlines() if "house" not in line and "type: pattern" not in line and "(?P" not in line
    ]
    config = read("\n".join(lines), DB_PASSWORD="x")
    assert [*config.sources] == ["remote_write", "wandb_api", "files"]
    assert [*config.collectors] == ["pull"]
    assert [*config.sinks] == ["store", "jsonl"]
    assert config.disabled_detectors == ["jax"]
    assert [*config.pipelines] == ["training"]


def test_the_command_writes_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lens.yaml"
    for arguments, code in (([str(file)], 0), ([str(file)], 1), ([str(file), "--force"], 0)):
        with pytest.raises(SystemExit) as caught:
            main(["init", *arguments])
        assert caught.value.code == code
    assert "is there already; --force overwrites it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["init", "-"])
    assert capsys.readouterr().out == file.read_text()

"""`lens schema`: what the schema takes, `lens validate` takes, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from lens_core import NoSettings, Source
from lens_core.cli import main
from lens_core.config.json_schema import json_schema
from lens_core.config.loading import InvalidConfiguration, parse_config
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import host_of

GOOD = [
    "sinks: {a: {type: jsonl, path: x}}",
    "sinks: {a: {type: jsonl, path: x, keep_files: '${N:-3}', required: false, limits: {max_records: 5}}}",
    "sinks: {http: {url: 'http://x', token: abc},"
    " b: {type: http, url: 'http://y', filter: {kinds: [event], labels: {a: b}}}}",
    "sources: {wandb_api: {}, records_api: }\nsinks: {jsonl: {path: x}}",
    "server: {listen: '0.0.0.0:1', open_ingest: true}\nspool: {kind: memory}\nsinks: {jsonl: {path: x}}",
    "sinks: {jsonl: {path: x}}\npipelines: {p: {from: wandb_api, to: [jsonl], spool: {max_bytes: 100000}}}",
]
BAD = [
    "sinks: {a: {type: jsonl}}",
    "sinks: {a: {path: x}}",
    "sinks: {a: {type: jsonl, path: x, keep_file: 3}}",
    "sinks: {a: {type: jsonl, path: x, keep_files: many}}",
    "sinks: {a: {type: nothing}}",
    "sink: {}",
    "server: {listen: 8080}",
    "sinks: {jsonl: {path: x}}\npipelines: {p: {from: []}}",
    "sinks: {http: {url: x, filter: {kinds: [evnt]}}}",
    "sources: {wandb_api: false}",
]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    made = json_schema(PluginHost.load())
    jsonschema.Draft202012Validator.check_schema(made)
    return made


@pytest.mark.parametrize("text", GOOD)
def test_schema_and_reader_both_take_what_is_right(schema: dict[str, Any], text: str) -> None:
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))
    parse_config(text, "f", PluginHost.load(), {"HOME": "/"}, folder=Path())


@pytest.mark.parametrize("text", BAD)
def test_schema_and_reader_both_refuse_what_is_wrong(schema: dict[str, Any], text: str) -> None:
    assert not jsonschema.Draft202012Validator(schema).is_valid(yaml.safe_load(text))
    with pytest.raises(InvalidConfiguration):
        parse_config(text, "f", PluginHost.load(), {"HOME": "/"}, folder=Path())


def test_secrets_are_write_only_and_settings_documented(schema: dict[str, Any]) -> None:
    properties = schema["$defs"]["sink.http"]["properties"]
    assert properties["token"]["anyOf"][0] == {"type": "string", "writeOnly": True}
    assert properties["url"]["description"].startswith("where the envelope is posted")


def test_settings_with_a_default_that_json_has_not_and_of_one_name_do_no_harm() -> None:
    class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        count: int
        where: Path = Path("x")

    class Odd(Source):
        name = "odd"

    Odd.Settings = Settings

    class First(Source):
        name = "first"

    First.Settings = type("Settings", (NoSettings,), {}, frozen=True, forbid_unknown_fields=True)
    made = json_schema(host_of(Odd, First))
    assert made["$defs"]["source.odd"]["properties"]["type"] == {"const": "odd"}
    validator = jsonschema.Draft202012Validator(made)
    validator.validate({"sources": {"first": {}, "odd": {"count": 1, "where": "y"}}})
    assert not validator.is_valid({"sources": {"odd": {"count": 1, "where": 7}}})
    assert not validator.is_valid({"sources": {"odd": {"where": "y"}}})


def test_the_command_prints_it(schema: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["schema"])
    assert caught.value.code == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema))

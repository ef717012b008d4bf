"""Configurations that would fail at the start, or go wrong quietly, are refused at their place and say what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import IngestRequest, Reply, Route, Source
from lens_core.config.loading import InvalidConfiguration, load_config, parse_config
from lens_core.config.problems import number_hint
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import host_with
from tests.certificates import write_certificate

HOST = PluginHost.load()
JSONL = "{type: jsonl, path: FOLDER/out.jsonl}"


def problems(folder: Path, text: str, **environ: str) -> list[str]:
    """Return the mistakes of a file with this text, as line:column: message."""
    file = folder / "lens.yaml"
    file.write_text(text.replace("FOLDER", str(folder)))
    try:
        load_config(file, HOST, {"LENS_DATA_DIR": str(folder / "data"), **environ})
    except InvalidConfiguration as error:
        return [str(problem).removeprefix(f"{file}:") for problem in error.problems]
    return []


REFUSED = [
    # text, place, what is said, how to fix it
    ("server: {tls_certificate: none.pem, tls_key: lens.yaml}", "1:27", "server.tls_certificate: ", "correct the path"),
    ("server: {tls_certificate: lens.yaml, tls_key: .}", "1:47", "server.tls_key: is a directory", "correct the path"),
    ("sinks: {a: {type: postgresql, dsn: 'mysql://me@db/x'}}", "1:36", "mysql:// is no address", "postgresql://"),
    ("sinks:\n  a:\n    type: postgresql\n    dsn:\n", "4:9", "nothing stands after the colon", "remove the key"),
    ("sinks: {a: {type: postgresql, dsn: ''}}", "1:36", "sinks.a.dsn: is empty", "postgresql://"),
    ("sinks: {a: {type: postgresql, dsn: '${NO:-}'}}", "1:36", "sinks.a.dsn: is empty", "postgresql://"),
    (
        "sinks: {a: {type: postgresql, dsn: 'host=db sslrootcert=/no/ca.pem'}}",
        "1:36",
        "sslrootcert",
        "correct the path",
    ),
    (
        "sinks: {a: {type: postgresql, dsn: 'postgresql://l:$DB_PW@h/d'}}",
        "1:36",
        "$DB_PW",
        "${DB_PW}",
    ),
    ("sinks: {a: {type: http, url: 'http://h/x', token: $LENS_TOKEN}}", "1:51", "$LENS_TOKEN", "$$LENS_TOKEN"),
    ("sinks: {a: {type: jsonl, path: FOLDER}}", "1:32", "is a directory", "name a file"),
    ("sinks: {a: {type: jsonl, path: FOLDER/lens.yaml/out}}", "1:32", "is no directory", "correct the path"),
    ("sinks: {a: {type: jsonl, path: ''}}", "1:32", "is a directory", "name a file"),
    (f"sinks:\n  a: {JSONL}\n  b: {JSONL}", "3:3", "the sink a writes FOLDER/out.jsonl too", "a file of its own"),
    (f"sinks:\n  a: {JSONL}\n  b: {{type: jsonl, path: FOLDER/../NAME/out.jsonl}}", "3:3", "the sink a", "its own"),
    ("collectors: {p: {type: directory_file, path: FOLDER}}", "1:46", "is a directory", "name a file"),
    ("sinks: {a: {type: prometheus, url: 'http://h/w', ca_file: /no.pem}}", "1:59", "ca_file", "correct the path"),
    ("data_dir: lens.yaml", "1:11", "is no directory", "name one"),
    ("data_dir: lens.yaml/below", "1:11", "is no directory", "name one"),
    ("sinks: {a: {type: http, url: 'http://127.0.0.1:8080/api/v1/records'}}", "1:9", "this daemon itself", "another"),
    (
        "server: {listen: '0.0.0.0:9'}\nsinks: {a: {type: http, url: 'http://localhost:9/x'}}",
        "2:9",
        "itself",
        "another",
    ),
    (
        "server: {listen: '[::]:99'}\nsinks: {a: {type: prometheus, url: 'http://[::1]:99'}}",
        "2:9",
        "itself",
        "another",
    ),
    ("server: {public_url: 'https://l.x'}\nsinks: {a: {type: http, url: 'https://l.x/y'}}", "2:9", "itself", "another"),
]


@pytest.mark.parametrize(("text", "place", "what", "how"), REFUSED, ids=range(len(REFUSED)))
def test_it_is_refused_at_its_place_with_a_remedy(tmp_path: Path, text: str, place: str, what: str, how: str) -> None:
    found = problems(tmp_path, text.replace("NAME", tmp_path.name))
    assert len(found) == 1, found
    assert found[0].startswith(f"{place}: "), found
    assert what.replace("FOLDER", str(tmp_path)) in found[0]
    assert how in found[0]


def test_what_is_right_is_not_refused(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    text = (
        f"server: {{tls_certificate: {certificate}, tls_key: {key}, listen: '127.0.0.1:8080'}}\n"
        "data_dir: not/yet/there\n"
        "sinks:\n"
        f"  a: {JSONL}\n"
        "  b: {type: jsonl, path: FOLDER/not-yet/other.jsonl}\n"
        "  c: {type: http, url: 'http://127.0.0.1:8081/api/v1/records', token: 'a$$NAME and $5 and a$'}\n"
        "  d: {type: postgresql, dsn: null}\n"
    )
    assert problems(tmp_path, text) == []


HINTS = [
    ("delivery: {retry_cap_seconds: 10s}", "it is a number of seconds: write 10"),
    ("delivery: {retry_cap_seconds: 5 min}", "it is a number of seconds: write 300"),
    ("spool: {max_bytes: 10GiB}", "it is a number of bytes: write 10737418240"),
    ("spool: {max_bytes: 64M}", "it is a number of bytes: write 67108864"),
    ("sinks: {a: {type: postgresql, retention_days: 12h}}", "it is a number of days: write 0.5"),
    ("sinks: {a: {type: postgresql, query_connections: 4x}}", "write the number without its unit: 4"),
    (r'detectors: {x: {type: pattern, pattern: "loss (\d+)"}}', r"single quotes, as in '\d'"),
    ("sinks:\nrows: {type: jsonl, path: x}", "indent it, if it belongs to sinks:"),
    ("server:\n  listen: 127.0.0.1:1\n   cluster_name: x", "line 3 is indented by 3 spaces; the lines above it by"),
    ("server:\n    listen: 127.0.0.1:1\n  cluster_name: x", "line 3 is indented by 2 spaces; the lines above it by"),
    ("server:\n\tlisten: x", "indent with spaces, not with tabs"),
]


@pytest.mark.parametrize(("text", "hint"), HINTS, ids=[hint for _, hint in HINTS])
def test_habits_get_a_hint(tmp_path: Path, text: str, hint: str) -> None:
    assert any(hint in found for found in problems(tmp_path, text)), problems(tmp_path, text)


@given(st.integers(0, 10_000), st.sampled_from(["s", " s", "m", "min", "h", "d"]))
def test_a_hint_in_seconds_is_what_was_meant(number: int, unit: str) -> None:
    found = re.search(r"write (\d+)$", number_hint("timeout_seconds", f"{number}{unit}"))
    assert found is not None
    assert int(found[1]) == number * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[unit.strip()]


class Twin(Source):
    """Takes the path of another source, and is there although nobody wrote it down."""

    name = "a_twin"

    def routes(self) -> Sequence[Route]:
        return [Route(paths=["/records"], handler=self.answer)]

    async def answer(self, request: IngestRequest) -> Reply:
        return Reply()


def test_an_installed_source_with_a_path_of_another_is_left_out(tmp_path: Path) -> None:
    host = host_with(Twin)
    config = parse_config("", "f", host, {"HOME": "/"}, folder=tmp_path)
    assert "a_twin" not in config.sources
    assert "records_api" in config.sources
    assert "a_twin" not in config.pipelines["default"].sources
    (notice,) = [notice for notice in config.notices if "a_twin" in notice]
    assert "POST /records is answered by the source records_api too" in notice
    alone = parse_config("sources: {a_twin: {}}", "f", host, {"HOME": "/"}, folder=tmp_path)
    assert [*alone.sources] == ["a_twin"]


def test_two_sources_on_one_path_are_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, "sources:\n  a: {type: records_api}\n  b: {type: records_api}\n")
    assert [one for one in found if "sources.b: POST /records is answered by the source a too" in one], found

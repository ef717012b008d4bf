"""Configuration: what a file means."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from lens_core import Batch, Collector, Delivered, Detector, Record, Secret, Sink, Source
from lens_core.config.conversion import to_plain
from lens_core.config.document import parse
from lens_core.config.json_schema import json_schema
from lens_core.config.loading import Config, InvalidConfiguration, load_config, parse_config
from lens_core.config.problems import Problems
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import host_of


class Rows(Source):
    name = "rows"


class PullSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entity: str
    tags: list[str] = []


class Pull(Collector):
    name = "pull"
    interval_seconds = 30.0
    Settings = PullSettings

    async def collect(self) -> Sequence[Record]:
        return ()


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size_bytes: Annotated[int, Meta(ge=1)] = 1


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dsn: Secret | None = None
    tokens: list[Secret] = []
    mode: Literal["fast", "safe"] = "safe"
    ratio: float = 0.5
    on: bool = False
    headers: dict[str, str] = {}
    parts: tuple[Part, ...] = ()


class Database(Sink):
    name = "postgresql"
    Settings = StoreSettings

    async def send(self, batch: Batch) -> Delivered:
        return Delivered()


class Megatron(Detector):
    name = "megatron"


class Jax(Detector):
    name = "jax"


HOST = host_of(Rows, Pull, Database, Megatron, Jax)


def read(text: str, environ: Mapping[str, str] | None = None, host: PluginHost = HOST, folder: Path = Path()) -> Config:
    return parse_config(text, "lens.yaml", host, environ or {"HOME": "/home/me"}, folder=folder)


def problems_of(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidConfiguration) as caught:
        read(text, environ)
    return [str(problem) for problem in caught.value.problems]


def found_in(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """The problems of a text that may be right."""
    try:
        read(text, environ)
    except InvalidConfiguration as error:
        return [str(problem) for problem in error.problems]
    return []


def test_no_file_is_a_working_configuration() -> None:
    config = load_config(None, HOST, {"LENS_DATA_DIR": "/data/lens"})
    assert config.server.listen == "127.0.0.1:8080"
    assert [*config.sources] == ["rows"]
    assert [*config.collectors] == []
    assert config.sinks["store"].plugin is Database
    assert [*config.detectors] == ["jax", "megatron"]
    assert config.pipelines["default"].sources == ["rows"]
    assert config.pipelines["default"].sinks == ["store"]
    assert config.data_dir == Path("/data/lens")
    assert config.store is None  # this database answers no queries
    assert config.notices == []


def test_the_data_dir_of_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "lens.yaml"
    file.write_text("data_dir: data\n")
    assert load_config(file, HOST, {}).data_dir == tmp_path / "data"
    assert load_config(file, HOST, {}, data_dir=tmp_path / "other").data_dir == tmp_path / "other"
    assert load_config(file, HOST, {}).file == file


def test_instances_of_one_plugin_under_names_of_their_own() -> None:
    config = read("""
        sinks:
          main: {type: postgresql, mode: fast}
          second: {type: postgresql, required: false, filter: {kinds: [event]}, limits: {max_records: 5}}
        collectors:
          ci: {type: pull, entity: acme, interval_seconds: 900}
          nightly: {type: pull, entity: acme}
        pipelines:
          all: {to: main}
          events: {from: [ci, rows], to: [second, main], spool: {kind: memory}, filter: {data_sources: [wandb]}}
        """)
    assert config.sinks["main"].settings.mode == "fast"
    assert not config.sinks["second"].required
    assert config.sinks["second"].filter.kinds == ["event"]
    assert config.sinks["second"].limits == {"max_records": 5}
    assert config.collectors["ci"].interval_seconds == 900
    assert config.collectors["nightly"].interval_seconds == 30
    assert config.collectors["nightly"].timeout_seconds == 120
    assert config.pipelines["all"].sources == ["rows", "ci", "nightly"]
    assert config.pipelines["events"].sinks == ["second", "main"]
    assert config.pipelines["events"].spool.kind == "memory"
    assert config.pipelines["events"].spool.max_bytes == 1024**3


def test_a_sinks_delivery_takes_the_rest_from_the_delivery_section() -> None:
    config = read("""
        delivery: {retry_cap_seconds: 5, failing_after: 3}
        sinks:
          a: {type: postgresql, delivery: {retry_cap_seconds: 1.5}}
          b: {type: postgresql, delivery: {}}
        """)
    own, other = config.sinks["a"].delivery, config.sinks["b"].delivery
    assert (own.retry_cap_seconds, own.failing_after, own.send_timeout_seconds) == (1.5, 3, 60.0)
    assert (other.retry_cap_seconds, other.failing_after) == (5.0, 3)


def test_a_pipelines_spool_takes_the_rest_from_the_spool_section() -> None:
    config = read("spool: {max_bytes: 100000}\npipelines: {a: {spool: {kind: memory}}, b: {}}")
    assert config.pipelines["a"].spool.max_bytes == 100_000
    assert config.pipelines["b"].spool.kind == "disk"


def test_detectors_are_on_unless_switched_off() -> None:
    assert [*read("detectors: {jax: false}").detectors] == ["megatron"]
    config = read("detectors: {jax: {enabled: false}, second: {type: megatron}}")
    assert config.disabled_detectors == ["jax"]
    assert [*config.detectors] == ["megatron", "second"]


def test_variables_and_files_are_expanded_once_inside_texts(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("p4ss${NO}\n")
    environ = {"USER": "lens", "TRICK": "${USER}", "EMPTY": "", "RATIO": "0.25", "ON": "true"}
    config = read(
        """
        sinks:
          store:
            type: postgresql
            dsn: "${file:secret}"
            headers: {a: '${TRICK}', b: "${EMPTY:-fallback}", c: $$x, d: "$${USER}", e: price $5, f: "${GONE:-}"}
            ratio: ${RATIO}
            on: ${ON}
        """,
        environ,
        folder=tmp_path,
    )
    settings = config.sinks["store"].settings
    assert settings.dsn.reveal() == "p4ss${NO}"
    assert settings.headers == {"a": "${USER}", "b": "fallback", "c": "$x", "d": "${USER}", "e": "price $5", "f": ""}
    assert settings.ratio == 0.25
    assert settings.on is True


def test_secrets_are_wrapped_and_never_shown() -> None:
    config = read('sinks: {store: {type: postgresql, dsn: "postgresql://u:hunter2@h/d", tokens: [hunter2, 1234567]}}')
    assert config.sinks["store"].settings.tokens == [Secret("hunter2"), Secret("1234567")]
    assert "hunter2" not in repr(config)
    assert "1234567" not in repr(config)


@pytest.mark.parametrize(
    "text",
    [
        "sinks: {store: {type: postgresql, dsn: [hunter2]}}",
        "sinks: {store: {type: postgresql, dsn: {a: hunter2}}}",
        "sinks: {store: {type: postgresql, tokens: hunter2}}",
        'sinks: {store: {type: postgresql, ratio: "${P}"}}',
        'sinks: {store: {type: postgresql, mode: "${P}"}}',
        'server: {listen: "${P}"}',
        'server: {listen: "http://me:hunter2@host"}',
        'store: "${P}"',
        'pipelines: {p: {from: ["${P}"]}}',
        'pipelines: {p: {filter: {kinds: ["${P}"]}}}',
        'sinks: {store: {type: "${P}"}}',
        'database: {port: "${P}", host: h}\nserver: {port: "${P}"}',
    ],
)
def test_no_message_shows_what_came_from_a_variable_or_a_secret(text: str) -> None:
    assert "hunter2" not in "\n".join(found_in(text, {"P": "hunter2"}))


def test_json_is_accepted() -> None:
    document = {
        "sinks": {"store": {"type": "postgresql", "headers": {"a": "\U0001f600\t/"}, "parts": [{}, {"size_bytes": 2}]}}
    }
    for text in (json.dumps(document), json.dumps(document, indent="\t")):
        settings = read(text).sinks["store"].settings
        assert settings.headers == {"a": "\U0001f600\t/"}
        assert settings.parts == (Part(), Part(2))


def test_anchors_and_merge_keys_work() -> None:
    config = read("""
        sinks:
          store: &base {type: postgresql, mode: fast, ratio: 0.1}
          second: {<<: *base, ratio: 1e-3}
          third: {<<: [*base, {mode: safe, on: true}]}
        """)
    assert config.sinks["second"].settings.ratio == 0.001
    assert config.sinks["second"].settings.mode == "fast"
    assert config.sinks["third"].settings.mode == "fast"
    assert config.sinks["third"].settings.on is True


def test_a_component_in_no_pipeline_is_a_notice() -> None:
    config = read(
        "sources: {rows: {}}\nsinks: {a: {type: postgresql}, b: {type: postgresql}}\npipelines: {p: {to: [a]}}"
    )
    assert config.notices == ["lens.yaml:2:32: b is in no pipeline and does nothing; add it to `to` of one"]


def test_the_seeds_own_keys_are_translated() -> None:
    config = read(
        """
server:
  port: 8080

database:
  host: postgres
  port: 5432
  database: primus_lens
  user: lens
  password: ${DB_PASSWORD}

wandb:
  enabled: true
  detection_enabled: true
  metrics_enabled: true

metrics:
  prometheus:
    enabled: true
    port: 9090
""",
        {"DB_PASSWORD": "p@ss/w:rd", "HOME": "/"},
    )
    assert config.server.listen == "0.0.0.0:8080"
    assert config.server.metrics_listen == "0.0.0.0:9090"
    assert config.sinks["store"].settings.dsn.reveal() == "postgresql://lens:p%40ss%2Fw%3Ard@postgres:5432/primus_lens"
    assert [notice.split(": ")[0] for notice in config.notices] == [
        "lens.yaml:3:9",
        "lens.yaml:6:3",
        "lens.yaml:13:3",
        "lens.yaml:19:5",
    ]
    assert "p@ss" not in " ".join(config.notices)


def test_the_seeds_switch_takes_the_wandb_source_away() -> None:
    class WandbApi(Source):
        name = "wandb_api"

    host = host_of(Rows, WandbApi, Database)
    assert [*read("wandb: {enabled: false}", host=host).sources] == ["rows"]
    assert [*read("wandb: {enabled: true}\nsources: {rows: {}}", host=host).sources] == ["rows", "wandb_api"]


def test_a_settings_own_check_points_at_its_field() -> None:
    class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low: must not be above high")
            if self.high == 7:
                raise ValueError("seven is right out")

    class Range(Source):
        name = "range"

    Range.Settings = Settings
    for text, expected in (
        ("sources: {range: {high: 1, low: 5}}", "lens.yaml:1:33: sources.range.low: must not be above high"),
        ("sources: {range: {high: 7}}", "lens.yaml:1:18: sources.range: seven is right out"),
    ):
        with pytest.raises(InvalidConfiguration) as caught:
            parse_config(text, "lens.yaml", host_of(Range, Database), {}, folder=Path())
        assert [str(problem) for problem in caught.value.problems] == [expected]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read: No such file or directory"):
        load_config(tmp_path / "gone.yaml", HOST, {})
    with pytest.raises(InvalidConfiguration, match="cannot be read: Is a directory"):
        load_config(tmp_path, HOST, {})
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"server:\n  cluster_name: caf\xe9\n")
    with pytest.raises(InvalidConfiguration, match=r"latin\.yaml:2:20: this is not UTF-8; save the file as UTF-8"):
        load_config(file, HOST, {})
    file.write_bytes(b"\xef\xbb\xbfserver: {}\n")
    assert load_config(file, HOST, {}).server.listen == "127.0.0.1:8080"


def test_aliases_cannot_blow_up() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefg", "bcdefgh", strict=True)]
    assert "too many values" in "\n".join(problems_of("\n".join(lines)))
    assert any("contains itself" in problem for problem in problems_of("sinks: &a {store: *a}"))


_leaf = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]))
)
_value = st.recursive(
    _leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc<é", min_size=1), inner, max_size=3)
)


@given(st.dictionaries(st.text("abcdef", min_size=1), _value, max_size=4))
def test_json_means_the_same_here_as_everywhere(document: dict[str, Any]) -> None:
    problems = Problems("x")
    text = json.dumps(document)
    if "<<" in text:
        return
    tree = parse(text, problems)
    assert problems.found == []
    assert tree is not None
    assert to_plain(tree) == document


@given(st.text("abc: -{}[]\"'\n\t$&*!#|>%@`,?é\x00", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert all(problem.startswith("lens.yaml:") for problem in found_in(text))


@given(
    st.dictionaries(st.sampled_from(["server", "spool", "sources", "sinks", "detectors", "pipelines", "store"]), _value)
)
def test_no_document_breaks_the_reader(document: dict[str, Any]) -> None:
    assert all(problem.startswith("lens.yaml:") for problem in found_in(json.dumps(document)))


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: Path
    others: list[Path] = []
    last: PurePosixPath | None = None


class Keeper(Sink):
    """Keeps things in places."""

    name = "keeper"
    Settings = Places

    async def send(self, batch: Batch) -> Delivered:
        return Delivered()


def test_settings_may_be_paths() -> None:
    text = "sinks: {a: {type: keeper, folder: '${HOME}/x', others: [y, 7], last: z}}"
    with pytest.raises(InvalidConfiguration, match=r"sinks\.a\.others\[1\]: expected a path, got the number 7"):
        parse_config(text, "f", host_of(Keeper), {"HOME": "/h"}, folder=Path())
    config = parse_config(text.replace("7", "'7'"), "f", host_of(Keeper), {"HOME": "/h"}, folder=Path())
    assert config.sinks["a"].settings == Places(Path("/h/x"), [Path("y"), Path("7")], PurePosixPath("z"))
    schema = json_schema(host_of(Keeper))["$defs"]["sink.keeper"]
    assert schema["properties"]["folder"]["type"] == "string"

"""The messages of a wrong configuration, word by word: they are what people see of Lens first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from lens_core import Batch, Collector, Delivered, Detector, Measurement, Secret, Sink, Source
from lens_core.config.loading import InvalidConfiguration, parse_config
from lens_core.plugin_host.host import PluginHost
from lens_core.plugin_host.loading import Plugin
from lens_core.testing import host_of


class WandbApi(Source):
    name = "wandb_api"


class CloudSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entity: Annotated[str, Meta(min_length=1)]
    gpus_per_run: Annotated[int, Meta(ge=1, le=4096)] = 8


class Cloud(Collector):
    name = "wandb_cloud"
    also_called = ("file", "weights_and_biases")
    Settings = CloudSettings

    async def collect(self) -> list[Measurement]:
        return []


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    token: Secret | None = None
    compression: Literal["gzip", "none"] = "gzip"
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0
    headers: dict[str, str] = {}
    hosts: list[str] = []
    verify: bool = True


class Http(Sink):
    name = "http"
    also_called = ("file", "lens")
    Settings = HttpSettings

    async def send(self, batch: Batch) -> Delivered:
        return Delivered()


class Jax(Detector):
    name = "jax"


def make_host() -> PluginHost:
    """Four plugins that are loaded, and three that are not."""
    loaded = [
        Plugin(name=found.name, module="m", distribution="d", version="1", classes=[found])
        for found in (WandbApi, Cloud, Http, Jax)
    ]
    datadog = Plugin(name="datadog", module="m", distribution="lens-agent", version="0.1.0")
    datadog.end_with("unavailable", 'pip install "lens-agent[datadog]" (not installed: datadog-client)')
    acme = Plugin(name="acme", module="acme_lens", distribution="acme-lens", version="2.1")
    acme.end_with("failed", "ZeroDivisionError: division by zero")
    off = Plugin(name="off", module="off", distribution="off", version="1")
    off.end_with("disabled", "listed in LENS_DISABLED_PLUGINS")
    return PluginHost([*loaded, datadog, acme, off])


HOST = make_host()
GOOD = "sinks: {a: {type: http, url: x}}\n"

GOLDEN: list[tuple[str, list[str]]] = [
    (
        "severs: {}\n" + GOOD,
        ["1:1: unknown section severs; did you mean server?"],
    ),
    (
        "zzz: {}\n" + GOOD,
        [
            "1:1: unknown section zzz; known here: server, data_dir, spool, delivery, sources, collectors, sinks, "
            "detectors, analyzers, pipelines, store, cluster"
        ],
    ),
    (
        "sinks:\n  a:\n    type: http\n    url: x\n    timeout_second: 5\n",
        ["5:5: sinks.a: unknown key timeout_second; did you mean timeout_seconds?"],
    ),
    (
        "delivery: {retry_cap_seconds: 0, retries: 3}\n"
        "sinks: {a: {type: http, url: x, delivery: {send_timeout_seconds: long}, limits: {max_records: 0}}}",
        [
            "1:31: delivery.retry_cap_seconds: expected a number above 0 and of at most 86400, got the number 0",
            "1:34: delivery: unknown key retries; there are: retry_base_seconds, retry_cap_seconds, "
            "send_timeout_seconds, failing_after",
            "2:66: sinks.a.delivery.send_timeout_seconds: expected a number above 0 and of at most 3600, "
            "got the text 'long'",
            "2:95: sinks.a.limits.max_records: expected a whole number of at least 1, got the number 0",
        ],
    ),
    (
        GOOD + "pipelines: {p: {spool: {kinds: disk}}}",
        ["2:25: pipelines.p.spool: unknown key kinds; did you mean kind?"],
    ),
    (
        "sinks: {a: {type: http}}",
        ["1:12: sinks.a: url is missing; it is text"],
    ),
    (
        "sinks: {a: {type: htpp, url: x}}",
        ["1:19: sinks.a: there is no sink plugin 'htpp'; did you mean http?"],
    ),
    (
        "sinks: {htp: {url: x}}",
        ["1:9: sinks.htp: there is no sink plugin 'htp'; did you mean http?; or say which with type: PLUGIN"],
    ),
    (
        "sinks: {a: {type: datadog}}",
        [
            "1:19: sinks.a: the plugin datadog (lens-agent 0.1.0) is unavailable: "
            'pip install "lens-agent[datadog]" (not installed: datadog-client)'
        ],
    ),
    (
        "sinks: {a: {type: acme}}",
        ["1:19: sinks.a: the plugin acme (acme-lens 2.1) failed to load: ZeroDivisionError: division by zero"],
    ),
    (
        "sinks: {a: {type: off}}",
        ["1:19: sinks.a: the plugin off (off 1) is disabled: listed in LENS_DISABLED_PLUGINS"],
    ),
    (
        "sinks: {a: {type: wandb_api}}",
        ["1:19: sinks.a: wandb_api is a source, not a sink; write it under sources"],
    ),
    (
        "sinks: {a: {type: http, url: 5, compression: gzp, timeout_seconds: 0, verify: yes}}",
        [
            "1:30: sinks.a.url: expected text, got the number 5; put it in quotes",
            "1:46: sinks.a.compression: expected one of: gzip, none, got the text 'gzp'; did you mean gzip?",
            "1:68: sinks.a.timeout_seconds: expected a number above 0, got the number 0",
            "1:79: sinks.a.verify: expected true or false, got the text 'yes'; write true",
        ],
    ),
    (
        "sinks: {a: {type: http, url: , headers: [], hosts: x, token: true}}",
        [
            "1:30: sinks.a.url: expected text, got nothing; write it after the colon, or remove the key",
            "1:41: sinks.a.headers: expected a mapping of names to text, got a list",
            "1:52: sinks.a.hosts: expected a list of text, got the text 'x'",
            "1:62: sinks.a.token: expected a secret text, got something else",
        ],
    ),
    (
        "sinks: {a: {type: http, url: x, hosts: [a, 5], headers: {b: [c]}, required: maybe}}",
        [
            "1:44: sinks.a.hosts[1]: expected text, got the number 5; put it in quotes",
            "1:61: sinks.a.headers.b: expected text, got a list",
            "1:77: sinks.a.required: expected true or false, got the text 'maybe'",
        ],
    ),
    (
        "sinks: {a: 5, 'b c': {type: http, url: x}}",
        [
            "1:12: sinks.a: expected settings (a mapping), got the number 5",
            "1:15: sinks: the name 'b c' must be made of letters, digits, dots, dashes and underscores, at most 64",
        ],
    ),
    (
        "sinks: [http]",
        ["1:8: sinks: expected a mapping of names to settings, got a list; write http: {SETTING: VALUE}"],
    ),
    (
        "collectors: {ci: {type: wandb_cloud, entity: '', gpus_per_run: 5000, interval_seconds: -1}}\n" + GOOD,
        [
            "1:46: collectors.ci.entity: expected text that is not empty, got the text ''",
            "1:64: collectors.ci.gpus_per_run: expected a whole number of at least 1 and of at most 4096, "
            "got the number 5000",
            "1:88: collectors.ci.interval_seconds: expected a number above 0, got the number -1",
        ],
    ),
    (
        'sinks: {a: {type: http, url: "${HOM}", token: "${file:/no/such}"}}',
        [
            "1:30: the environment variable HOM is not set (did you mean HOME?); set it, or write ${HOM:-default}",
            "1:47: the file /no/such cannot be read: No such file or directory",
        ],
    ),
    (
        'sinks: {a: {type: http, url: "${", token: "${a b}"}}',
        [
            "1:30: ${ without }; close it, or write $$ for a dollar sign",
            "1:43: ${a b} is no variable; write ${NAME}, ${NAME:-default} or ${file:PATH}, or $$ for a dollar sign",
        ],
    ),
    (
        "server: {listen: 8080}\n" + GOOD,
        ["1:18: server.listen: expected text like 127.0.0.1:8080, got the number 8080; put it in quotes"],
    ),
    (
        "server: {listen: ':8080', metrics_listen: 'x:99999'}\n" + GOOD,
        ["1:18: server.listen: expected text like 127.0.0.1:8080, got the text ':8080'"],
    ),
    (
        "server: {metrics_listen: 'x:99999'}\n" + GOOD,
        ["1:26: server.metrics_listen: the port must be at most 65535"],
    ),
    (
        GOOD + "detectors: {jxa: false, house: {type: pattern}}",
        [
            "2:18: detectors.jxa: there is no detector plugin 'jxa'; did you mean jax?",
            "2:39: detectors.house: there is no detector plugin 'pattern'; there are: jax",
        ],
    ),
    (
        GOOD + "pipelines:\n  p: {from: [wandb], to: [a, b, a], filter: {kinds: [evnt], labls: {}}}\n  q: {from: []}",
        [
            "3:14: pipelines.p.from: wandb is not among the sources, collectors or analyzers; did you mean wandb_api?",
            "3:30: pipelines.p.to: b is not among the sinks; sinks: a",
            "3:33: pipelines.p.to: a is here twice; remove one of them",
            "3:54: pipelines.p.filter.kinds: there is no kind of record evnt; did you mean event?",
            "3:61: pipelines.p.filter: unknown key labls; did you mean labels?",
            "4:13: pipelines.q.from: the list is empty; name something, or leave it out to mean all",
        ],
    ),
    (
        "sources: {x: {type: wandb_api}}\ncollectors: {x: {type: wandb_cloud, entity: e}}\n" + GOOD,
        ["2:14: collectors.x: a source has this name too; pipelines could not tell them apart"],
    ),
    (
        GOOD + "store: a",
        ["2:8: store: the sink a (http) cannot answer queries; none of the sinks can"],
    ),
    (
        GOOD + "store: b",
        ["2:8: store: there is no sink b; there are no sinks that can"],
    ),
    (
        GOOD + "sinks: {}\n",
        ["2:1: sinks is here twice (first in line 1); remove one of them"],
    ),
    (
        "server: {port: 0}\nwandb: {enable: true}\n" + GOOD,
        [
            "1:16: server.port: expected a port from 1 to 65535, got the number 0",
            "2:9: wandb: unknown key enable; did you mean enabled?",
        ],
    ),
    (
        "database: {host: db}\nsinks: {store: {type: http, url: x}}",
        ["1:11: database: there is a sink `store` too; remove one of them"],
    ),
    (
        "sinks: {a: {type: http, url: ${URL}}}",
        ["1:31: this is not YAML: did not find expected ',' or '}'; inside {…} put \"${NAME}\" in quotes"],
    ),
    (
        "sinks:\n\ta: 1\n",
        ["2:1: this is not YAML: found character that cannot start any token; indent with spaces, not with tabs"],
    ),
    (
        "sinks: a: b\n",
        ['1:9: this is not YAML: mapping values are not allowed in this context; put a text that holds ": " in quotes'],
    ),
    (
        "x: \x01",
        ["1:4: this is not YAML: control characters are not allowed; remove the character"],
    ),
    (
        "- a",
        ["1:1: the file must be a mapping of sections (server, sources, sinks …), not a list"],
    ),
    (
        "sinks: {a: {type: http, url: !include x}}",
        ["1:30: the tag !include is not supported; remove it"],
    ),
    (  # names that other programs have for plugins
        "sources: {in: {type: file, outputs: [a]}}\n"
        "collectors: {c: {type: weights_and_biases, entity: e}}\nsinks: {a: {type: lens, url: x}}",
        [
            "1:22: sources.in: there is no source plugin 'file'; "
            "here the collector wandb_cloud does that, under collectors",
            "2:24: collectors.c: there is no collector plugin 'weights_and_biases'; "
            "here the collector wandb_cloud does that",
            "3:19: sinks.a: there is no sink plugin 'lens'; here the sink http does that",
        ],
    ),
    (
        "pipeline: {inputs: [{name: tail}]}\nlisten: 'x:1'\n" + GOOD,
        [
            "1:1: unknown section pipeline; did you mean pipelines?",
            "2:1: unknown section listen; write it under server: {listen: …}",
        ],
    ),
    (
        "sources: [wandb_api]\n" + GOOD,
        ["1:10: sources: expected a mapping of names to settings, got a list; write wandb_api: {SETTING: VALUE}"],
    ),
    (
        GOOD + "pipelines:\n  s: {from: {wandb_api: {}}, to: {a: {}}}",
        [
            "3:13: pipelines.s.from: expected a list of names, got a mapping; write from: [wandb_api], "
            "and what they are under sources and collectors",
            "3:34: pipelines.s.to: expected a list of names, got a mapping; write to: [a], "
            "and what they are under sinks",
        ],
    ),
    (
        GOOD + "pipelines: {from: [wandb_api], to: a}",
        [
            "2:19: pipelines.from: expected a mapping, got a list; "
            "write pipelines: {NAME: {from: [SOURCE], to: [SINK]}}",
            "2:36: pipelines.to: expected a mapping, got the text 'a'; "
            "write pipelines: {NAME: {from: [SOURCE], to: [SINK]}}",
        ],
    ),
    (
        GOOD + "pipelines: [a]",
        [
            "2:12: pipelines: expected a mapping of names to pipelines, got a list; "
            "write pipelines: {NAME: {from: [SOURCE], to: [SINK]}}",
        ],
    ),
    (
        "? [a]\n: b\n" + GOOD,
        ["1:3: a key must be a text"],
    ),
]


def messages(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_config(text, "f", HOST, environ or {"HOME": "/h"}, folder=Path())
    return [str(problem).removeprefix("f:") for problem in caught.value.problems]


@pytest.mark.parametrize(("text", "expected"), GOLDEN)
def test_messages_are_as_written_here(text: str, expected: list[str]) -> None:
    assert messages(text) == expected


def test_the_whole_error_is_ready_to_be_shown() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_config("x: 1\ny: 2\n" + GOOD, "dir/lens.yaml", HOST, {}, folder=Path())
    first, *rest = str(caught.value).splitlines()
    assert first == "the configuration has 2 problems:"
    assert [line.split(": ")[0] for line in rest] == ["dir/lens.yaml:1:1", "dir/lens.yaml:2:1"]


def test_two_stores_must_be_told_apart() -> None:
    from lens_core import Store

    store = type("Pg", (Store,), {"name": "pg", **{name: (lambda self: None) for name in Store.__abstractmethods__}})
    with pytest.raises(InvalidConfiguration, match=r"f:1:25: a and b can both answer queries; say which with store: a"):
        parse_config(
            "sinks: {a: {type: pg}, b: {type: pg}}".replace(", b", ",  b"), "f", host_of(store), {}, folder=Path()
        )
    config = parse_config("sinks: {a: {type: pg}, b: {type: pg}}\nstore: b", "f", host_of(store), {}, folder=Path())
    assert config.store == "b"


# Line of the file → (what stands there, column of the mistake); 20 mistakes of 20 kinds.
PLANTED: dict[int, tuple[str, int]] = {
    3: ("  listn: 127.0.0.1:1", 3),
    5: ("  max_body_bytes: many", 19),
    20: ("    timeout_seconds: -4", 22),
    41: ("    compression: zip", 18),
    62: ("    urll: http://x", 5),
    83: ("    token: ${NOT_SET_AT_ALL}", 12),
    104: ("    token: ${file:/no/such/file}", 12),
    127: ("    type: htp", 11),
    144: ("    verify: no", 13),
    167: ("    headers: [a]", 14),
    188: ("    hosts: {}", 12),
    209: ("    url: again", 5),
    230: ("    required: 7", 15),
    251: ("    filter: {kinds: [metric_steps]}", 22),
    272: ("    limits: {max_record: 5}", 14),
    293: ("    hosts: [a, 1]", 16),
    479: ("  p1: {from: [nobody], to: [sink0]}", 15),
    481: ("  p3: {to: []}", 12),
    483: ("  p5: {to: [sink999]}", 13),
    490: ("detecters: {}", 1),
}


def long_file() -> Iterator[str]:
    """500 lines without a mistake, but for those that are planted."""
    yield from (
        "# 500 lines",
        "server:",
        "  cluster_name: c",
        "  listen: 127.0.0.1:8080",
        "  open_ingest: false",
        "sinks:",
    )
    for number in range(67):
        yield from (
            f"  sink{number}:",
            "    type: http",
            f"    url: http://host{number}",
            "    # verify it",
            "    verify: true",
            "",
            "",
        )
    yield from ("sources: {wandb_api: {}}", "pipelines:")
    yield from (f"  p{number}: {{}}" for number in range(10))
    yield from ("" for _ in range(13))


def test_twenty_mistakes_in_500_lines_are_found_exactly() -> None:
    lines = [*long_file()]
    assert len(lines) == 500
    parse_config("\n".join(lines), "f", HOST, {}, folder=Path())
    for line, (text, _) in PLANTED.items():
        lines[line - 1] = text
    found = messages("\n".join(lines))
    assert [message.split(": ")[0] for message in found] == [
        f"{line}:{column}" for line, (_, column) in PLANTED.items()
    ]

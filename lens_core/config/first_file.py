"""The first configuration file (`lens init`): what runs without a file, written out, with everything else as comments.

It is made from the plugins that are installed, so that it is always right for them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from ..base.setting_types import field_documentation
from ..plugin_host.host import PluginHost
from ..plugin_host.info import ComponentKind, needs_settings, settings_of, summary_of
from .settings import ServerSettings, SpoolSettings

_WIDTH = 110
_PRIMUS_SERVER = {
    "listen": "0.0.0.0:8080",
    "metrics_listen": "0.0.0.0:9090",
    "metrics_open": True,
    "open_ingest": True,
}
# Behaviour of Primus-Lens that Lens has only on request; written only if the plugin has such a setting.
_PRIMUS_SETTINGS = {"remote_write": {"copies": "only"}}
_PRIMUS_SERVER_DSN = "postgresql://${DB_USER:-lens}:${DB_PASSWORD}@${DB_HOST:-postgres}:${DB_PORT:-5432}"
# Beside the tables of Primus-Lens, not among them: both have a `training_performance`.
_PRIMUS_DSN = f"{_PRIMUS_SERVER_DSN}/${{DB_NAME:-lens}}"
_PRIMUS_TABLES = f"{_PRIMUS_SERVER_DSN}/${{PRIMUS_DB_NAME:-primus_lens}}"
_PRIMUS_STORE = "${REMOTE_WRITE_URL:-http://vminsert:8480/insert/0/prometheus/api/v1/write}"


def first_file(host: PluginHost, *, primus: bool = False) -> str:
    """The text of a valid configuration; with `primus` one that takes the place of Primus-Lens' processor."""
    return "\n".join(
        [*_head(), *_server(primus), *_source_lines(host, primus), *_sinks(host, primus), *_remaining_lines(host), ""]
    )


def _head() -> Iterator[str]:
    yield "# Lens. Check with: lens validate FILE      All settings: lens plugins NAME      Draw it: lens graph FILE"
    yield "# ${NAME}, ${NAME:-default} and ${file:PATH} are replaced inside texts; $$ is a dollar sign."


def _server(primus: bool) -> Iterator[str]:
    yield from ("", "server:")
    yield from _struct(ServerSettings, _PRIMUS_SERVER if primus else {"listen": ServerSettings().listen})
    yield from ("", "# spool:                  # where accepted records wait until every sink has them")
    yield from (line.replace("  # ", "#   ", 1) for line in _struct(SpoolSettings, {}))


def _struct(settings: type[msgspec.Struct], given: dict[str, Any]) -> Iterator[str]:
    """The fields of a section: those that are given as they are, the others with their defaults as comments."""
    documentation = field_documentation(settings)
    default = settings()
    for field in msgspec.structs.fields(settings):
        value = given.get(field.name, getattr(default, field.name))
        setting = f"{field.name}: {_yaml(value)}"
        mark = "" if field.name in given else "# "
        yield f"  {mark}{setting}".ljust(40) + f"  # {documentation.get(field.name, '')}"


def _source_lines(host: PluginHost, primus: bool) -> Iterator[str]:
    yield from ("", "sources:                    # data that comes to us")
    names = host.names("source")
    for name in names:
        component = host.component("source", name)
        if not needs_settings(component):
            wanted = _PRIMUS_SETTINGS.get(name, {}) if primus else {}
            known = [setting.name for setting in settings_of(component)]
            settings = ", ".join(f"{key}: {value}" for key, value in wanted.items() if key in known)
            yield _comment(f"  {name}: {{{settings}}}", summary_of(component))
    yield from _examples(host, "source", [name for name in names if needs_settings(host.component("source", name))])
    collectors = list(host.names("collector"))
    if primus and "directory_postgresql" in collectors:
        collectors.remove("directory_postgresql")
        yield from ("", "collectors:                 # data that we go and get")
        yield "  directory_postgresql:     # pods, workloads, devices: Primus-Lens' tables; or use `kubernetes: {}`"
        yield f'    dsn: "{_PRIMUS_TABLES}"'
        yield from _examples(host, "collector", collectors)
    elif collectors:
        yield from ("", "# collectors:               # data that we go and get")
        yield from _examples(host, "collector", collectors)


def _sinks(host: PluginHost, primus: bool) -> Iterator[str]:
    yield from (
        "",
        "sinks:                      # where it goes; `required: false`: a slow sink does not block ingestion",
    )
    dsn = f'\n    dsn: "{_PRIMUS_DSN}"' if primus else ""
    yield _comment("  store:", "answers the queries; without a dsn Lens starts a PostgreSQL of its own")
    yield f"    type: postgresql{dsn}"
    if not primus:
        yield '    # dsn: "postgresql://lens:${DB_PASSWORD}@db/lens"'
    others = [name for name in host.names("sink") if name != "postgresql"]
    if primus and "prometheus" in others:
        others.remove("prometheus")
        yield "  series:                   # where enriched series go; while it is away they wait while there is room"
        yield "    type: prometheus"
        yield f'    url: "{_PRIMUS_STORE}"'
        yield "    training: false         # true: training rows as lens_training_* too"
        yield "    required: false"
    yield from _examples(host, "sink", others)


def _examples(host: PluginHost, kind: ComponentKind, names: list[str]) -> Iterator[str]:
    """Instances as comments, with the settings that they need."""
    for name in names:
        component = host.component(kind, name)
        required = [setting for setting in settings_of(component) if setting.required]
        settings = ", ".join(f"{setting.name}: …" for setting in required)
        yield _comment(f"  # {name}: {{{settings}}}", summary_of(component))


def _remaining_lines(host: PluginHost) -> Iterator[str]:
    detectors = ", ".join(host.names("detector")) or "none"
    yield ""
    yield from textwrap.wrap(
        f"All installed detectors are on: {detectors}.", _WIDTH, initial_indent="# ", subsequent_indent="# "
    )
    yield "# detectors:"
    yield "#   jax: false              # one of them off"
    yield "#   house:                  # one of your own: lines that look like this are metrics of house_trainer"
    yield "#     type: pattern"
    yield r"#     line: 'step=(?P<iteration>\d+) loss=(?P<lm_loss>\S+)'"
    yield "#     framework: house_trainer"
    yield ""
    yield "# Without this section everything goes everywhere."
    yield "# pipelines:"
    yield "#   training: {from: [wandb_api], to: [store], filter: {kinds: [step_metrics, event]}}"


def _comment(text: str, comment: str) -> str:
    return f"{text.ljust(26)}  # {comment}" if comment else text


def _yaml(value: Any) -> str:
    """A scalar in YAML; JSON's way is right for all that occurs here."""
    return msgspec.json.encode(value).decode()

"""What keys are called in Vector, Fluent Bit, the OpenTelemetry Collector and Prometheus, and what to write here.

Whoever knows one of them writes its words; an answer that only lists ours would leave the translating to them. Nothing
here is accepted: two ways to write one thing would have to be explained for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from ..plugin_host.info import ComponentKind
from .settings import ServerSettings

Words = Mapping[str, str]


def _same(words: str, answer: str) -> dict[str, str]:
    """One answer for several words."""
    return dict.fromkeys(words.split(), answer)


ROADS = "write pipelines: {NAME: {from: [SOURCE], to: [SINK]}}"
_READING = "detectors read lines, a pipeline's or a sink's `filter` chooses records; nothing else changes them"

_SECTIONS: Words = {
    **_same(
        "source receivers receiver input inputs",
        "you mean sources (what is sent to Lens) or collectors (what Lens fetches itself)",
    ),
    **_same("sink exporters exporter output outputs destinations destination", "you mean sinks"),
    **_same("transforms transform processors processor filters parsers", _READING),
    **_same("service route routes connectors", ROADS),
    **_same("scrape_configs", "Lens scrapes nothing; let Prometheus or an agent write to Lens (remote write)"),
    **_same("remote_write", "what Lens takes in stands under sources, where it writes to under sinks"),
    **_same("rule_files alerting", "Lens evaluates no rules; dashboards/alerts.yaml has some for Prometheus"),
    **_same("global external_labels", "the name of this cluster is server.cluster_name"),
    **_same("extensions api telemetry", "Lens' own health and metrics need no setting: /livez, /readyz, /metrics"),
    **_same("buffer buffers storage queue", "you mean spool"),
}

PIPELINE_WORDS: Words = {
    **_same("source sources receivers receiver input inputs collectors analyzers", "you mean from"),
    **_same("sink sinks exporters exporter output outputs destinations destination", "you mean to"),
    **_same("processors transforms detectors", _READING),
    **_same("filters match labels kinds data_sources", "you mean filter: {kinds: […], data_sources: […], labels: {…}}"),
    **_same("buffer queue storage", "you mean spool"),
}


def section_words() -> Words:
    """The words of others for sections, and what belongs into the section `server`."""
    server = (field.encode_name for field in msgspec.structs.fields(ServerSettings))
    return {**{key: f"write it under server: {{{key}: …}}" for key in server}, **_SECTIONS}


_OFF = "remove the whole entry, or make a comment of it, to switch it off"
_FED = "who feeds whom is said in one place: " + ROADS.removeprefix("write ")
_COMPONENT_WORDS: dict[ComponentKind, Words] = {
    "source": {**_same("outputs output to sinks tag pipelines", _FED), "enabled": _OFF},
    "collector": {
        **_same("outputs output to sinks tag pipelines", _FED),
        **_same("scrape_interval collection_interval poll_interval every", "you mean interval_seconds"),
        "enabled": _OFF,
    },
    "detector": {},
    "analyzer": _same("outputs output to sinks pipelines", _FED),
    "sink": {
        **_same("inputs input from sources match pipelines", _FED),
        **_same("buffer", "what waits is kept by the pipeline: spool, at the top or in a pipeline"),
        **_same("batch", "you mean limits: {max_records: …, max_bytes: …, max_wait_seconds: …}"),
        **_same("request retry retries retry_on_failure retry_limit sending_queue queue_config", "you mean delivery"),
        **_same("healthcheck", "lens validate --connect tries every sink"),
        "enabled": _OFF,
    },
}

# Names of one thing; the first that a plugin's settings have is what the others mean.
_SYNONYMS = (
    ("dsn", "connection", "connection_string", "database_url"),
    ("url", "uri", "endpoint", "address", "host", "hosts"),
    ("dsn", "url", "uri", "endpoint", "host"),
    ("paths", "path", "file", "files", "filename", "include"),
    ("token", "api_key", "bearer_token", "auth", "authorization", "credentials"),
)


def component_words(kind: ComponentKind, settings: type[msgspec.Struct]) -> Words:
    """The words of others for one component's keys, those included that its own settings give a meaning."""
    own = {field.encode_name for field in msgspec.structs.fields(settings)}
    return {**_synonyms(own), **_COMPONENT_WORDS[kind]}


def _synonyms(own: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for group in _SYNONYMS:
        meant = next((name for name in group if name in own), None)
        if meant is not None:
            found = {**dict.fromkeys(group, f"you mean {meant}"), **found}
    return found

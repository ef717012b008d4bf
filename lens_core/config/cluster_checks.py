"""Refuses settings that cannot work with a section `cluster`, where the file has them."""

from __future__ import annotations

from collections.abc import Mapping

from ..plugin_api.components import Sink
from .document import Node
from .problems import NO_PLACE, Problems
from .settings import ClusterSettings, PipelineConfig, SinkConfig


def check_cluster(
    cluster: ClusterSettings | None,
    sinks: Mapping[str, SinkConfig],
    known: Mapping[str, Node],
    pipelines: Mapping[str, PipelineConfig],
    section: Node | None,
    problems: Problems,
) -> None:
    """Every daemon of a cluster must be able to deliver every partition, and to lose it to another at any time."""
    if section is not None and section.value is None:
        reason = "cluster: is empty: name the servers in cluster.nats, or remove it for a daemon that is alone"
        problems.append_error(section.place, reason)
    if cluster is None:
        return
    for name, sink in sinks.items():
        assert issubclass(sink.plugin, Sink)
        place = known[name].place if name in known else (section.place if section is not None else NO_PLACE)
        if sink.plugin.is_exclusive(sink.settings):
            problems.append_error(
                place,
                f"sinks.{name}: {sink.type} as it is set here keeps what it stores on one machine, and with cluster:"
                " any daemon delivers; name a server that all reach (dsn for postgresql), or leave the sink out",
            )
    for pipeline in pipelines.values():
        if pipeline.spool.kind == "memory":
            place = section.place if section is not None else NO_PLACE
            problems.append_error(
                place,
                f"pipelines.{pipeline.name}: spool.kind: memory is not supported with cluster:, whose log is JetStream;"
                " leave it out",
            )

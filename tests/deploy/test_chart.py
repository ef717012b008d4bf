"""The Helm chart, rendered by Helm itself: valid for Kubernetes, its configurations valid for Lens."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from lens_core.config.loading import parse_config
from lens_core.plugin_host.host import PluginHost

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "lens"
VERSIONS = ("1.30", "1.33")
# Kinds that are not Kubernetes' own; no package brings their schemas.
OPERATORS = ("monitoring.coreos.com/v1",)
ENVIRONMENT = {
    "NODE_NAME": "n",
    "LENS_DSN": "postgresql://db/lens",
    "LENS_INGEST_TOKEN": "t" * 16,
    "WANDB_API_KEY": "k",
}

# What people set, from nothing to everything.
VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small": {
        "openIngest": True,
        "networkPolicy": {"enabled": True},
        "agent": {"enabled": False},
        "service": {"legacyName": "primus-lens-telemetry-processor"},
    },
    "cluster": {
        "cluster": {"enabled": True, "config": {"nats": ["nats://nats-0.nats-headless:4222"], "partitions": 16}},
        "database": {"existingSecret": "lens-db"},
        "monitoring": {"enabled": True, "tokenSecret": "scrape"},
    },
    "everything": {
        "image": {"repository": "registry.example/lens-agent", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "daemon": {
            "config": {"server": {"open_ingest": False}, "sources": {"wandb_api": {}, "logs": {}, "records_api": {}}},
            "environmentSecret": "more",
            "storage": {"size": "100Gi", "className": "fast"},
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
            "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
        },
        "database": {"existingSecret": "lens-db"},
        "service": {"type": "LoadBalancer", "port": 80},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "lens.example",
            "tlsSecret": "lens-tls",
            "annotations": {"nginx.ingress.kubernetes.io/auth-url": "https://login.example"},
        },
        "monitoring": {"enabled": True, "tokenSecret": "scrape", "labels": {"release": "prometheus"}},
        "openIngest": False,
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"training": "yes"}}}]},
        "agent": {
            "hookSpool": {"enabled": True},
            "tokenSecret": "ingest",
            "nodeSelector": {"gpu": "yes"},
            "priorityClassName": "system-node-critical",
            "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
            "config": {"collectors": {"machine": {"interval_seconds": 30}}},
        },
        "collectors": {
            "enabled": True,
            "config": {"ci": {"type": "wandb_cloud", "entity": "acme", "project": "llm"}},
            "environmentSecret": "wandb",
        },
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/lens"}},
    },
}


def objects(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rendered objects, by kind/name."""
    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render(values, name="watch", namespace="observability")
    texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
    documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in documents}


def configurations(values: dict[str, Any]) -> dict[str, str]:
    data: dict[str, str] = objects(values)["ConfigMap/watch"]["data"]
    return data


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]["jobTemplate"]["spec"] if document["kind"] == "CronJob" else document["spec"]
    pod: dict[str, Any] = spec["template"]
    return pod


def test_helm_lint_has_nothing_to_say() -> None:
    for values in VALUES.values():
        report = helm_python.lint(CHART, values, strict=True)
        assert report["errors"] == []
        assert [found for found in report["messages"] if found["error"] != "icon is recommended"] == []


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_for_kubernetes(name: str, version: str) -> None:
    found = objects(VALUES[name])
    assert "StatefulSet/watch" in found
    for document in found.values():
        if document["apiVersion"] in OPERATORS:
            continue
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_every_configuration_is_valid_for_lens(name: str, tmp_path: Path) -> None:
    for file, text in configurations(VALUES[name]).items():
        config = parse_config(text, file, PluginHost.load(), ENVIRONMENT, folder=tmp_path)
        assert config.pipelines, file


def test_the_parts_are_there_when_they_are_wanted() -> None:
    small, everything = objects(VALUES["small"]), objects(VALUES["everything"])
    assert "Service/primus-lens-telemetry-processor" in small
    assert not [name for name in small if name.startswith(("DaemonSet", "CronJob"))]
    assert {"DaemonSet/watch-agent", "CronJob/watch-collectors"} <= set(everything)
    assert everything["CronJob/watch-collectors"]["spec"]["schedule"] == "*/15 * * * *"


def test_a_cluster_is_three_daemons_on_different_nodes_that_go_one_by_one(tmp_path: Path) -> None:
    found = objects(VALUES["cluster"])
    daemons = found["StatefulSet/watch"]["spec"]
    assert daemons["replicas"] == 3
    (term,) = pod_of(found["StatefulSet/watch"])["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    wanted = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert wanted.items() <= daemons["template"]["metadata"]["labels"].items()
    assert found["PodDisruptionBudget/watch"]["spec"]["maxUnavailable"] == 1
    text = configurations(VALUES["cluster"])["daemon.yaml"]
    config = parse_config(text, "daemon.yaml", PluginHost.load(), ENVIRONMENT, folder=tmp_path)
    assert config.cluster is not None
    assert config.cluster.partitions == 16
    alone = objects({})
    assert alone["StatefulSet/watch"]["spec"]["replicas"] == 1
    assert not [name for name in alone if name.startswith("PodDisruptionBudget")]


def test_the_daemons_configuration_is_the_charts_with_the_users_over_it(tmp_path: Path) -> None:
    text = configurations(VALUES["everything"])["daemon.yaml"]
    assert "postgresql://" not in text
    config = parse_config(text, "daemon.yaml", PluginHost.load(), ENVIRONMENT, folder=tmp_path)
    assert config.server.open_ingest is False
    assert config.server.listen == "0.0.0.0:8080"
    assert set(config.sources) == {"wandb_api", "logs", "records_api"}
    assert set(config.collectors) == {"pods"}
    assert config.collectors["pods"].type == "kubernetes"


def test_the_operator_scrapes_the_daemon_and_loads_the_alerts() -> None:
    found = objects(VALUES["everything"])
    monitor = found["ServiceMonitor/watch"]["spec"]
    chosen = [
        name
        for name, document in objects(VALUES["everything"] | {"service": {"legacyName": "old"}}).items()
        if document["kind"] == "Service"
        and monitor["selector"]["matchLabels"].items() <= document["metadata"]["labels"].items()
    ]
    assert chosen == ["Service/watch"]
    (port,) = found["Service/watch"]["spec"]["ports"]
    assert [(end["port"], end["path"], end["honorLabels"]) for end in monitor["endpoints"]] == [
        (port["name"], "/metrics", False),
        (port["name"], "/federate", True),
    ]
    rules = found["PrometheusRule/watch"]
    assert rules["spec"] == yaml.safe_load((CHART / "alerts.yaml").read_text())
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    daemon = yaml.safe_load(configurations(VALUES["everything"])["daemon.yaml"])
    assert daemon["sinks"]["scrape"]["type"] == "prometheus"
    assert not [name for name in objects({}) if name.startswith(("Ingress", "ServiceMonitor", "PrometheusRule"))]


def test_services_select_the_daemon_alone() -> None:
    found = objects(VALUES["everything"])
    selector = found["Service/watch"]["spec"]["selector"]
    chosen = [
        name
        for name, document in found.items()
        if document["kind"] in ("StatefulSet", "DaemonSet", "CronJob")
        and selector.items() <= pod_of(document)["metadata"]["labels"].items()
    ]
    assert chosen == ["StatefulSet/watch"]
    (port,) = found["Service/watch"]["spec"]["ports"]
    (container,) = pod_of(found["StatefulSet/watch"])["spec"]["containers"]
    assert port["targetPort"] in {entry["name"] for entry in container["ports"]}


@pytest.mark.parametrize("name", VALUES)
def test_every_volume_is_mounted_and_every_mount_is_a_volume(name: str) -> None:
    for document in objects(VALUES[name]).values():
        if document["kind"] not in ("StatefulSet", "DaemonSet", "CronJob"):
            continue
        pod = pod_of(document)["spec"]
        claims = [claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])]
        volumes = sorted([*claims, *(volume["name"] for volume in pod["volumes"])])
        (container,) = pod["containers"]
        assert sorted(mount["name"] for mount in container["volumeMounts"]) == volumes
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["args"][0] in ("up", "collect")


def test_the_agent_may_do_no_more_than_it_must() -> None:
    def capabilities(values: dict[str, Any]) -> Any:
        (container,) = pod_of(objects(values)["DaemonSet/watch-agent"])["spec"]["containers"]
        return container["securityContext"]["capabilities"]

    assert capabilities({}) == {"drop": ["ALL"]}
    assert capabilities(VALUES["everything"]) == {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]}


def test_a_changed_configuration_rolls_the_pods() -> None:
    def checksum(values: dict[str, Any]) -> str:
        text: str = pod_of(objects(values)["StatefulSet/watch"])["metadata"]["annotations"]["checksum/config"]
        return text

    assert checksum({}) == checksum({"service": {"port": 81}})
    assert checksum({}) != checksum({"clusterName": "b"})


@pytest.mark.parametrize(
    "values",
    [
        {"servce": {}},
        {"daemon": {"storage": {"size": "20GB"}}},
        {"service": {"port": "80"}},
        {"collectors": {"every": "15m"}},
        {"ingress": {"enabled": True}},
        {"monitoring": {"enabled": True}},
    ],
    ids=["unknown section", "wrong unit", "text for a number", "unknown key", "no host", "no token"],
)
def test_mistakes_in_values_are_refused(values: dict[str, Any]) -> None:
    with helm_python.Chart.load(CHART) as chart, pytest.raises(helm_python.HelmError):
        chart.validate_schema(chart.merge_values(values))


def test_ingest_is_closed_and_all_parts_share_one_token() -> None:
    found = objects({})
    assert yaml.safe_load(found["ConfigMap/watch"]["data"]["daemon.yaml"])["server"]["open_ingest"] is False
    assert len(base64.b64decode(found["Secret/watch-ingest"]["data"]["token"])) == 40
    for values, secret in (({}, "watch-ingest"), ({"agent": {"tokenSecret": "mine"}}, "mine")):
        found = objects(values)
        for name in ("StatefulSet/watch", "DaemonSet/watch-agent"):
            (container,) = pod_of(found[name])["spec"]["containers"]
            tokens = [entry for entry in container["env"] if entry["name"] == "LENS_INGEST_TOKEN"]
            assert [entry["valueFrom"]["secretKeyRef"] for entry in tokens] == [{"name": secret, "key": "token"}]
        daemon, agent = (
            yaml.safe_load(found["ConfigMap/watch"]["data"][f"{part}.yaml"]) for part in ("daemon", "agent")
        )
        assert daemon["server"]["ingest_token"] == agent["sinks"]["daemon"]["token"] == "${LENS_INGEST_TOKEN}"
    assert "Secret/watch-ingest" not in objects({"agent": {"tokenSecret": "mine"}})
    assert not [name for name in objects({"openIngest": True}) if name.startswith("Secret/")]


def test_the_network_policy_lets_in_who_is_named_and_the_charts_own() -> None:
    policy = objects(VALUES["everything"])["NetworkPolicy/watch"]["spec"]
    ((rule,),) = [policy["ingress"]]
    assert rule["from"][0] == {"namespaceSelector": {"matchLabels": {"training": "yes"}}}
    assert rule["from"][1]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "watch"
    assert objects(VALUES["small"])["NetworkPolicy/watch"]["spec"]["ingress"][0]["from"] == [{"namespaceSelector": {}}]
    assert "ingress" not in objects(VALUES["everything"])["NetworkPolicy/watch-senders"]["spec"]
    assert not [name for name in objects({}) if name.startswith("NetworkPolicy/")]


CANNOT_WORK: dict[str, dict[str, Any]] = {
    "is not reached by the Service": {"daemon": {"config": {"server": {"listen": "127.0.0.1:8080"}}}},
    "and set service.port": {"daemon": {"config": {"server": {"listen": "0.0.0.0:9999"}}}},
    "put TLS in front": {"daemon": {"config": {"server": {"tls_certificate": "a", "tls_key": "b"}}}},
    "records_api": {"daemon": {"config": {"sources": {"logs": {}}}}},
    "names no collector": {"collectors": {"enabled": True}},
    "gives one too": {
        "database": {"existingSecret": "db"},
        "daemon": {"config": {"sinks": {"store": {"dsn": "postgresql://db/x"}}}},
    },
    "it names no server": {"cluster": {"enabled": True}, "database": {"existingSecret": "db"}},
    "one PostgreSQL that all of them reach": {"cluster": {"enabled": True, "config": {"nats": ["nats://n:4222"]}}},
    "there is no volume ca": {"agent": {"extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}]}},
    "choose another name": {"daemon": {"extraVolumes": [{"name": "data", "emptyDir": {}}]}},
}


@pytest.mark.parametrize("reason", CANNOT_WORK)
def test_what_cannot_work_is_not_rendered(reason: str) -> None:
    with pytest.raises(helm_python.HelmError, match=reason):
        objects(CANNOT_WORK[reason])

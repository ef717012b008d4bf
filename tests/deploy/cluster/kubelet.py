"""Creates pods of workloads and containers of pods, for StatefulSets of one and for Jobs; nothing is restarted."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.deploy.cluster.api_server import ApiServer
from tests.deploy.cluster.containers import Container, Mount
from tests.deploy.cluster.objects import RESOURCES, Object

_BY_KIND = {resource.kind: resource for resource in RESOURCES}


class Image(NamedTuple):
    """The replacement of an image on this machine: entry point, PATH, private folders, working directory."""

    entrypoint: Sequence[str] = ()
    path: str = "/usr/bin:/bin"
    folders: Sequence[Mount] = ()
    workdir: str = "/"


class Kubelet:
    """Starts the containers of every pod that comes; `images` by their whole name."""

    def __init__(self, server: ApiServer, images: Mapping[str, Image], folder: Path, shared: Sequence[Mount]) -> None:
        self._server = server
        self._images = images
        self._folder = folder
        self._shared = shared
        server.objects.created = self._created

    def stop(self) -> None:
        """End what runs."""
        for container in self._server.containers.values():
            container.stop()

    def _created(self, thing: Object) -> None:
        name, namespace = thing["metadata"]["name"], thing["metadata"].get("namespace", "")
        if thing["kind"] == "Pod":
            self._start(thing, namespace)
        elif thing["kind"] in ("StatefulSet", "Job"):
            template = thing["spec"]["template"]
            # As their controllers name pods: by number, and by letters that nobody chose.
            pod = f"{name}-0" if thing["kind"] == "StatefulSet" else f"{name}-x7k2p"
            claims = [
                {"name": claim["metadata"]["name"], "emptyDir": {}}
                for claim in thing["spec"].get("volumeClaimTemplates") or []
            ]
            spec = {**template["spec"], "volumes": [*template["spec"].get("volumes", []), *claims]}
            metadata = {**(template.get("metadata") or {}), "name": pod}
            self._server.objects.create(_BY_KIND["Pod"], namespace, {"metadata": metadata, "spec": spec})

    def _start(self, pod: Object, namespace: str) -> None:
        name = pod["metadata"]["name"]
        folder = self._folder / f"{namespace}-{name}"
        folder.mkdir()
        volumes = {volume["name"]: self._volume(volume, folder, namespace) for volume in pod["spec"].get("volumes", [])}
        for declared in pod["spec"].get("initContainers", []):
            self._container(declared, pod, folder, volumes).wait()
        (declared,) = pod["spec"]["containers"]
        self._server.containers[namespace, name] = self._container(declared, pod, folder, volumes)

    def _container(self, declared: Object, pod: Object, folder: Path, volumes: Mapping[str, Path]) -> Container:
        image = self._images[declared["image"]]
        mounts = [Mount(volumes[one["name"]], one["mountPath"]) for one in declared.get("volumeMounts", [])]
        command = [*(declared.get("command") or image.entrypoint), *declared.get("args", [])]
        environ = {"PATH": image.path, "HOME": "/tmp", **dict(self._environ(declared, pod))}
        # A pod's volume may be where the machine's folder is, so that comes last.
        everything = [*image.folders, *mounts, *self._shared]
        return Container(folder / f"of-{declared['name']}", command, environ, everything, image.workdir)

    def _volume(self, volume: Object, folder: Path, namespace: str) -> Path:
        made = folder / str(volume["name"])
        made.mkdir()
        if "configMap" in volume:
            for file, text in self._get("ConfigMap", namespace, volume["configMap"]["name"])["data"].items():
                (made / file).write_text(text)
        return made

    def _environ(self, declared: Object, pod: Object) -> Iterator[tuple[str, str]]:
        namespace = pod["metadata"]["namespace"]
        for source in declared.get("envFrom") or []:
            yield from self._secret(namespace, source["secretRef"]["name"]).items()
        for entry in declared.get("env") or []:
            origin = entry.get("valueFrom") or {}
            if "fieldRef" in origin:
                yield entry["name"], str(pod["metadata"][origin["fieldRef"]["fieldPath"].removeprefix("metadata.")])
            elif "secretKeyRef" in origin:
                wanted = origin["secretKeyRef"]
                if wanted.get("optional") and not self._has_secret(namespace, wanted["name"]):
                    continue
                yield entry["name"], self._secret(namespace, wanted["name"])[wanted["key"]]
            else:
                yield entry["name"], entry["value"]

    def _has_secret(self, namespace: str, name: str) -> bool:
        there = self._server.objects.list(_BY_KIND["Secret"])
        return any((one["metadata"].get("namespace"), one["metadata"]["name"]) == (namespace, name) for one in there)

    def _secret(self, namespace: str, name: str) -> dict[str, str]:
        data = self._get("Secret", namespace, name)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def _get(self, kind: str, namespace: str, name: str) -> Object:
        return self._server.objects.get(_BY_KIND[kind], namespace, name)

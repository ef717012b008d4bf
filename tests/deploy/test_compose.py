"""deploy/compose: what its services name exists, and its files make a cluster with the commands that it runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NATS = [name for name in SERVICES if name.startswith("nats-")]
DAEMONS = [name for name in SERVICES if name.startswith("lens-")]
NATS_CONFIG = (FOLDER / "nats.conf").read_text()
LENS_CONFIG = (FOLDER / "lens.yaml").read_text()


def test_the_services_name_what_is_there() -> None:
    assert (len(NATS), len(DAEMONS), len(SERVICES)) == (3, 3, 7)
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    for name in DAEMONS:
        build = SERVICES[name]["build"]
        assert (FOLDER / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
        assert re.search(rf"^FROM \S+ AS {build['target']}$", dockerfile, re.M)
    assert "cluster," in dockerfile, "the image has the extra"
    mounted = [volume.split(":") for service in SERVICES.values() for volume in service.get("volumes", ())]
    for source, place, *_ in mounted:
        assert (FOLDER / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"], source
        if source == "./lens.yaml":
            assert f'"--config", "{place}"' in dockerfile, "the command of the image reads it"
    volumes = [source for source, *_ in mounted if not source.startswith("./")]
    assert sorted(volumes) == sorted(COMPOSE["volumes"]), "each service has a volume of its own"
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert [port.split(":")[0] for port in ports] == ["127.0.0.1"] * 3
    waited = {name for service in SERVICES.values() for name in service.get("depends_on", ())}
    assert waited == set(NATS) | {"postgres"}
    assert all("healthcheck" in SERVICES[name] for name in waited)


def test_addresses_and_variables_fit_together() -> None:
    config = yaml.safe_load(LENS_CONFIG)
    assert config["cluster"]["nats"] == [f"nats://{name}:4222" for name in NATS]
    assert [f"nats://{name}:6222" in NATS_CONFIG for name in NATS] == [True] * 3
    assert "http: 0.0.0.0:8222" in NATS_CONFIG, "where Lens asks a server without cluster.monitoring"
    for name in NATS:
        assert SERVICES[name]["command"][-2:] == ["--name", name]
    for name in DAEMONS:
        assert set(re.findall(r"\$\{(\w+)", LENS_CONFIG)) == set(SERVICES[name]["environment"])
    password = SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert f"lens:{password}@postgres/lens" in SERVICES["lens-1"]["environment"]["LENS_DSN"]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The three servers with the file and the command of the compose file; yields which address stands for which."""
    numbers = free_ports(9)
    ports = dict(zip([(name, port) for name in NATS for port in (4222, 6222, 8222)], numbers, strict=True))
    addresses = {f"{name}:{port}": f"127.0.0.1:{number}" for (name, port), number in ports.items()}
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"
    running = []
    for name in NATS:
        text = replaced(NATS_CONFIG, addresses).replace("store_dir: /data", f'store_dir: "{tmp_path}/{name}"')
        text = replaced(text, {f"0.0.0.0:{port}": addresses[f"{name}:{port}"] for port in (4222, 6222, 8222)})
        file = tmp_path / f"{name}.conf"
        file.write_text(text)
        command = [str(file) if part == "/etc/nats/nats.conf" else part for part in SERVICES[name]["command"]]
        with (tmp_path / f"{name}.log").open("wb") as log:
            running.append(subprocess.Popen([binary, *command], stdout=log, stderr=log))
    yield addresses
    for process in running:
        process.kill()
        process.wait()


def replaced(text: str, addresses: dict[str, str]) -> str:
    for name, address in addresses.items():
        text = text.replace(name, address)
    return text


def test_the_files_make_a_cluster(servers: dict[str, str], tmp_path: Path, postgres_dsn: str) -> None:
    def is_healthy(name: str) -> bool:
        url = SERVICES[name]["healthcheck"]["test"][-1].replace("127.0.0.1:8222", servers[f"{name}:8222"])
        try:
            return httpx.get(url, timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    for name in NATS:
        wait_for(lambda name=name: is_healthy(name), 60, f"{name} is healthy")  # type: ignore[misc]
    config = yaml.safe_load(replaced(LENS_CONFIG, servers))
    config["cluster"]["monitoring"] = [f"http://{servers[f'{name}:8222']}" for name in NATS]
    del config["server"]["listen"]
    daemons = [RunningLens(tmp_path / name, json.dumps(config)) for name in DAEMONS[:2]]
    try:
        for daemon in daemons:
            daemon.start(LENS_DSN=postgres_dsn)
        row = {"workload_uid": "job", "run_id": "r", "logs": [{"step": 1, "timestamp": 1.0, "data": {"loss": 0.5}}]}
        assert daemons[0].post("/wandb/logs", row).status_code == 200
        daemons[0].kill()
        found = wait_for(lambda: daemons[1].points("job", metrics="loss"), 60, "the point at the other daemon")
        assert [point["value"] for point in found] == [0.5]
    finally:
        for daemon in daemons:
            daemon.end()

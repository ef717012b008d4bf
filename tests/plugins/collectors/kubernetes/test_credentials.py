from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from lens_plugins.collectors.kubernetes.client import Access, KubernetesApi, find_access

from lens_core import ConfigurationError


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder with ca.crt and key.pem of 127.0.0.1, and a token."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [*command.split(), "-keyout", tmp_path / "key.pem", "-out", tmp_path / "ca.crt"],
        check=True,
        capture_output=True,
    )
    (tmp_path / "token").write_text("t0k3n")
    return tmp_path


async def ask(access: Access) -> Any:
    api = KubernetesApi(access, 5)
    try:
        return await api.get_object("/api/v1/pods")
    finally:
        await api.close()


async def serve_once(certificate: Path, *, client_certificate: bool = False) -> tuple[asyncio.Server, list[str]]:
    """A TLS server that answers an empty list; what it was asked."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "ca.crt", certificate / "key.pem")
    if client_certificate:
        context.load_verify_locations(certificate / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n" + b'{"items": []}')
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context), asked


def port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def test_service_account_of_a_pod(certificate: Path) -> None:
    server, asked = await serve_once(certificate)
    async with server:
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port_of(server))}
        assert await ask(find_access("", "", environ, certificate)) == {"items": []}
    assert "authorization: bearer t0k3n" in asked[0].lower()


async def test_certificates_inside_a_kubeconfig(certificate: Path) -> None:
    server, asked = await serve_once(certificate, client_certificate=True)
    async with server:
        ca, key = (base64.b64encode((certificate / name).read_bytes()).decode() for name in ("ca.crt", "key.pem"))
        document = {
            "current-context": "other",
            "contexts": [{"name": "mine", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": f"https://127.0.0.1:{port_of(server)}",
                        "certificate-authority-data": ca,
                    },
                }
            ],
            "users": [{"name": "u", "user": {"client-certificate-data": ca, "client-key-data": key}}],
        }
        (certificate / "config").write_text(yaml.safe_dump(document))
        access = find_access("", "mine", {"KUBECONFIG": str(certificate / "config")}, certificate)
        assert await ask(access) == {"items": []}
    assert "authorization" not in asked[0].lower()
    with pytest.raises(ConfigurationError, match=r"not complete.*other"):
        find_access(str(certificate / "config"), "", {})


def test_nothing_to_go_by(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no kubeconfig"):
        find_access("", "", {"HOME": str(tmp_path)}, tmp_path)
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find_access(str(tmp_path / "bad"), "", {})

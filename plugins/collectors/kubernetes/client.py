"""Asks the API server: credentials and a client.

How to reach an API server: the pod's service account, or a kubeconfig.

The kubeconfig's format: kubernetes.io, "Organizing Cluster Access Using kubeconfig Files", and the ExecCredential of
client.authentication.k8s.io/v1.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import yaml

from lens_core import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Tokens in files are rotated; they are read again after so long.
TOKEN_SECONDS = 60.0
EXEC_TIMEOUT_SECONDS = 60.0


class Access:
    """A server's address, how to trust it, and who we are."""

    def __init__(self, server: str, tls: ssl.SSLContext | bool) -> None:
        self.server = server.rstrip("/")
        self.tls = tls

    async def headers(self) -> dict[str, str]:
        """The headers that say who we are."""
        token = await self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def token(self) -> str:
        """A bearer token; '' where certificates do it."""
        return ""

    def refused(self) -> None:
        """The server does not know this token (any more)."""


class _FileAccess(Access):
    def __init__(self, server: str, tls: ssl.SSLContext | bool, file: Path) -> None:
        super().__init__(server, tls)
        self._file = file
        self._token = ""
        self._until = 0.0

    async def token(self) -> str:
        if time.monotonic() >= self._until:
            self._token = self._file.read_text().strip()
            self._until = time.monotonic() + TOKEN_SECONDS
        return self._token

    def refused(self) -> None:
        self._until = 0.0


class _FixedAccess(Access):
    def __init__(self, server: str, tls: ssl.SSLContext | bool, token: str) -> None:
        super().__init__(server, tls)
        self._token = token

    async def token(self) -> str:
        return self._token


class _BasicAccess(Access):
    def __init__(self, server: str, tls: ssl.SSLContext | bool, username: str, password: str) -> None:
        super().__init__(server, tls)
        self._pair = base64.b64encode(f"{username}:{password}".encode()).decode()

    async def headers(self) -> dict[str, str]:
        return {"Authorization": f"Basic {self._pair}"}


class _ExecAccess(Access):
    """A command prints a token, as the clouds have it."""

    def __init__(self, server: str, tls: ssl.SSLContext | bool, command: Mapping[str, Any]) -> None:
        super().__init__(server, tls)
        self._arguments = [str(command["command"]), *map(str, command.get("args") or [])]
        self._environment = {str(item["name"]): str(item["value"]) for item in command.get("env") or []}
        self._version = str(command.get("apiVersion", "client.authentication.k8s.io/v1"))
        self._token = ""
        self._until = 0.0

    async def token(self) -> str:
        if time.time() >= self._until:
            await self._renew()
        return self._token

    def refused(self) -> None:
        self._until = 0.0

    async def _renew(self) -> None:
        asked = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        info = msgspec.json.encode(asked).decode()
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": info}
        process = await asyncio.create_subprocess_exec(
            *self._arguments, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), EXEC_TIMEOUT_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise ConnectionError(f"{self._arguments[0]} (the kubeconfig's exec) ended with {process.returncode}")
        status = msgspec.json.decode(output)["status"]
        self._token = str(status.get("token", ""))
        expires = status.get("expirationTimestamp")
        self._until = datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp() - 30 if expires else 1e18


def find_access(kubeconfig: str, context: str, environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Access:
    """The access that settings and surroundings give. Raises ConfigurationError that says what was looked for."""
    if not kubeconfig and not context and "KUBERNETES_SERVICE_HOST" in environ and (account / "token").exists():
        return _in_cluster(environ, account)
    home = environ.get("HOME", "")
    path = Path(kubeconfig or environ.get("KUBECONFIG", "").split(os.pathsep)[0] or f"{home}/.kube/config").expanduser()
    try:
        document = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no kubeconfig {path}, and this is no pod with a service account; set kubeconfig"
        ) from None
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"the kubeconfig {path} cannot be read: {error}") from None
    try:
        return _of_kubeconfig(document, context, path.parent)
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ConfigurationError(f"the kubeconfig {path} is not complete: {error!r}") from None
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"the kubeconfig {path} has a certificate that cannot be used: {error}") from None


def _in_cluster(environ: Mapping[str, str], account: Path) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    return _FileAccess(server, tls, account / "token")


def _of_kubeconfig(document: Any, wanted: str, folder: Path) -> Access:
    context = _find_entry(document["contexts"], wanted or document["current-context"])["context"]
    cluster = _find_entry(document["clusters"], context["cluster"])["cluster"]
    user = _find_entry(document.get("users") or [], context["user"])["user"] if context.get("user") else {}
    server = str(cluster["server"])
    tls = _tls(cluster, user, folder) if server.startswith("https") else False
    if user.get("exec"):
        return _ExecAccess(server, tls, user["exec"])
    if user.get("tokenFile"):
        return _FileAccess(server, tls, folder / user["tokenFile"])
    if user.get("username"):
        return _BasicAccess(server, tls, str(user["username"]), str(user.get("password", "")))
    return _FixedAccess(server, tls, str(user.get("token") or ""))


def _find_entry(entries: list[Any], name: str) -> Any:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise KeyError(name)


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    data = cluster.get("certificate-authority-data")
    file = cluster.get("certificate-authority")
    context = ssl.create_default_context(
        cafile=str(folder / file) if file else None, cadata=base64.b64decode(data).decode() if data else None
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_client_certificate(context, user, folder)
    return context


def _load_client_certificate(context: ssl.SSLContext, user: Mapping[str, Any], folder: Path) -> None:
    """ssl reads certificates from files alone, so those in the kubeconfig are in one for a moment."""
    with tempfile.TemporaryDirectory() as temporary:
        paths = []
        for key in ("client-certificate", "client-key"):
            if user.get(f"{key}-data"):
                path = Path(temporary) / key
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(user[f"{key}-data"]))
                paths.append(path)
            elif user.get(key):
                paths.append(folder / user[key])
        if paths:
            context.load_cert_chain(*map(str, paths))


# A watch sends bookmarks about once a minute; a connection that is silent for longer than this is dead.
SILENCE_SECONDS = 150.0


class ApiError(Exception):
    """The server answered with an error; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class Gone(Exception):
    """The requested version is too old (410): list anew."""


class KubernetesApi:
    """One server, over one client."""

    def __init__(self, access: Access, timeout_seconds: float) -> None:
        self._access = access
        self._timeout_seconds = timeout_seconds
        self._client = httpx.AsyncClient(
            base_url=access.server, verify=access.tls, timeout=timeout_seconds, trust_env=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def get_object(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        """One object. Raises ApiError, Gone, httpx.HTTPError."""
        headers = {"Accept": "application/json", **await self._access.headers()}
        response = await self._client.get(path, params=dict(parameters or {}), headers=headers)
        self._check(response.status_code, response.content)
        return msgspec.json.decode(response.content)

    async def watch_events(self, path: str, parameters: Mapping[str, str]) -> AsyncIterator[Any]:
        """Events until the server ends it. Raises Gone, ApiError, httpx.HTTPError."""
        headers = {"Accept": "application/json", **await self._access.headers()}
        timeout = httpx.Timeout(self._timeout_seconds, read=SILENCE_SECONDS)
        async with self._client.stream(
            "GET", path, params=dict(parameters), headers=headers, timeout=timeout
        ) as stream:
            if stream.status_code != 200:
                self._check(stream.status_code, await stream.aread())
            async for line in stream.aiter_lines():
                if line.strip():
                    yield self._parse_event(line)

    def _parse_event(self, line: str) -> Any:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ApiError(200, f"a watch sent a line that is not JSON: {error}") from None
        if event.get("type") == "ERROR":
            status = event.get("object") or {}
            if status.get("code") == 410:
                raise Gone(str(status.get("message", "")))
            raise ApiError(int(status.get("code") or 500), str(status.get("message", "")))
        return event

    def _check(self, status: int, body: bytes) -> None:
        if status == 200:
            return
        if status == 401:
            self._access.refused()
        message = _message(body)
        if status == 410:
            raise Gone(message)
        raise ApiError(status, message)


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["message"])[:300]
    except (msgspec.DecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace")

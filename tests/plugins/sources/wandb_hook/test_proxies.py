"""The ways to the receiver: straight on unless a proxy is asked for; over a real one that notes what it passes on."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from lens_hook import say
from lens_hook.client import Answer, Client
from lens_hook.proxies import proxy_for
from lens_hook.settings import Settings

from tests.certificates import write_certificate
from tests.plugins.sources.wandb_hook.receiver import Receiver, receiving

BODY = b'{"records":[]}'
VARIABLES = [*(f"{kind}_proxy" for kind in ("http", "https", "all", "no"))]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of the machine that runs the tests, and nothing that was said already."""
    say._said.clear()
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Proxy:
    """A forward proxy for HTTP and CONNECT that leads every name to one port of this machine."""

    def __init__(self, leads_to: int, login: str = "") -> None:
        self.seen: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not self.is_allowed():
                    return
                onward = http.client.HTTPConnection("127.0.0.1", leads_to)
                onward.request("POST", urlsplit(self.path).path, body, dict(self.headers.items()))
                answer = onward.getresponse()
                content = answer.read()
                self.answer(answer.status, content)
                onward.close()

            def do_CONNECT(self) -> None:
                if not self.is_allowed():
                    return
                with socket.create_connection(("127.0.0.1", leads_to)) as onward:
                    self.send_response(200)
                    self.end_headers()
                    back = threading.Thread(target=pass_on, args=(onward, self.connection))
                    back.start()
                    pass_on(self.connection, onward)
                    back.join()
                self.close_connection = True

            def is_allowed(self) -> bool:
                outer.seen.append(f"{self.command} {self.path} {self.headers['Host']}")
                allowed = self.headers.get("Proxy-Authorization", "") == login
                if not allowed:
                    self.answer(407, b"")
                return allowed

            def answer(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"


def pass_on(one: socket.socket, other: socket.socket) -> None:
    """Copy what comes until there is no more."""
    with contextlib.suppress(OSError):
        while piece := one.recv(1 << 16):
            other.sendall(piece)
        other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxying(leads_to: int, login: str = "") -> Iterator[Proxy]:
    """A proxy for the length of a with statement."""
    proxy = Proxy(leads_to, login)
    thread = threading.Thread(target=proxy.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        thread.join()
        proxy.server.server_close()


def post(base_url: str, proxy: str = "") -> Answer:
    """One request of the hook."""
    client = Client(Settings(base_url=base_url, proxy=proxy), lambda: None)
    try:
        return client.post("/records", BODY, 5.0)
    finally:
        client.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def proxy(receiver: Receiver) -> Iterator[Proxy]:
    with proxying(receiver.port) as found:
        yield found


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_proxies_of_the_environment_are_not_used_unasked(
    receiver: Receiver, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, f"http://{proxy.address}")
    assert post(receiver.url).status == 200
    assert proxy.seen == []


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_proxies_of_the_environment_are_used_when_asked_for(
    receiver: Receiver, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, f"http://{proxy.address}")
    assert post("http://lens.example:8080/api/v1", "environment").status == 200
    assert proxy.seen == ["POST http://lens.example:8080/api/v1/records lens.example:8080"]
    assert [request.path for request in receiver.requests] == ["/api/v1/records"]


def test_one_connection_to_a_proxy_serves_many_requests(receiver: Receiver, proxy: Proxy) -> None:
    client = Client(Settings(base_url="http://lens.example/api/v1", proxy=proxy.address), lambda: None)
    assert [client.post("/records", BODY, 5.0).status for _ in range(3)] == [200] * 3
    client.close()
    assert proxy.seen == ["POST http://lens.example/api/v1/records lens.example"] * 3


def test_what_no_proxy_names_is_reached_directly(
    receiver: Receiver, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    monkeypatch.setenv("NO_PROXY", ".svc,.cluster.local")
    for wanted in ("environment", proxy.address):
        answer = post("http://lens.default.svc.cluster.local:1/api/v1", wanted)
        assert (answer.status, proxy.seen) == (0, [])  # there is no such host here, and nobody else was asked
        assert post(receiver.url, wanted).status == 200  # loopback needs no entry
    assert post("http://lens.example/api/v1", "environment").status == 200
    assert len(proxy.seen) == 1


def test_a_login_is_sent_to_the_proxy_and_one_that_is_missing_is_said(
    receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    with proxying(receiver.port, login="Basic dXNlcjpwQHNz") as proxy:
        url = f"http://user:p%40ss@{proxy.address}"
        assert post("http://lens.example/api/v1", url).status == 200
        assert post("http://lens.example/api/v1", proxy.address).status == 407
        assert "Proxy-Authorization" in receiver.requests[0].headers  # the test's proxy hands all headers on
    assert "the proxy asks for a login" in capfd.readouterr().err
    assert "p%40ss" not in repr(Settings(proxy=url))


def test_tls_goes_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = write_certificate(tmp_path, "lens.example", "lens.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with receiving() as receiver:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        receiver.use_tls(context)
        with proxying(receiver.port, login="Basic dTpw") as proxy:
            monkeypatch.setenv("https_proxy", f"http://u:p@{proxy.address}")
            assert post("https://lens.example/api/v1", "environment").status == 200
            assert proxy.seen == ["CONNECT lens.example:443 lens.example:443"]
            assert "Proxy-Authorization" not in receiver.requests[0].headers
            refused = post("https://lens.example/api/v1", proxy.address)
            assert (refused.status, refused.error) == (
                0,
                "OSError: the proxy answers 407 Proxy Authentication Required to CONNECT",
            )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("socks5://user:secret@proxy:1080", "a proxy must be http://HOST:PORT, not socks5://…"),
        ("https://proxy", "a proxy must be http://HOST:PORT, not https://…"),
        ("http://proxy:secret", "the proxy's port is no number"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_said_and_not_gone_around(
    wanted: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = post("http://lens.example/api/v1", wanted)
    assert (answer.status, answer.error) == (0, f"PRIMUS_LENS_PROXY: {said}")
    error = capfd.readouterr().err
    assert said in error
    assert "secret" not in error


@pytest.mark.parametrize(
    ("url", "no_proxy", "is_direct"),
    [
        ("http://lens.example", "", False),
        ("http://lens.example", "*", True),
        ("http://lens.example", "example", True),
        ("http://lens.example", "other, .EXAMPLE", True),
        ("http://lens.example", "*.example", True),
        ("http://LENS.example", "lens.example", True),
        ("http://lens.example", "ens.example", False),
        ("http://lens.example:8080", "lens.example:8080", True),
        ("http://lens.example:8080", "lens.example:80", False),
        ("http://lens.example", "lens.example:80", True),
        ("http://10.1.2.3", "10.0.0.0/8", True),
        ("http://10.1.2.3", "10.1.2.3", True),
        ("http://10.1.2.3", "2.3", False),
        ("http://10.1.2.3", "11.0.0.0/8 nonsense/x", False),
        ("http://[fd00::1]:80", "fd00::/8", True),
        ("http://[fd00::1]:80", "[fd00::1]:80", True),
        ("http://[fd00::1]:80", "fd00::2", False),
        ("http://127.0.0.1:8080", "", True),
        ("http://[::1]:8080", "", True),
        ("http://localhost:8080", "", True),
        ("http://primus-lens-telemetry-processor:8080", "", True),  # a service's bare name
    ],
)
def test_which_hosts_are_reached_directly(url: str, no_proxy: str, is_direct: bool) -> None:
    environment = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy}
    assert (proxy_for("environment", url, environment) is None) is is_direct


def test_a_proxy_that_is_named_leads_to_bare_names_too() -> None:
    found = proxy_for("proxy:3128", "http://lens:8080", {})
    assert found is not None
    assert found[:2] == ("proxy", 3128)
    assert proxy_for("environment", "http://lens.example", {}) is None


def test_nothing_of_it_is_imported_unasked() -> None:
    code = (
        "import sys; from lens_hook.client import Client; from lens_hook.settings import Settings; "
        "Client(Settings(base_url='http://127.0.0.1:1/api/v1'), lambda: None); "
        "print([name for name in ('lens_hook.proxies', 'urllib.request') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"

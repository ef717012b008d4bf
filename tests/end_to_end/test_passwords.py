"""A running daemon whose passwords everybody quotes says none of them, in its log or to whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from lens_core.cli import main
from tests.end_to_end.conftest import make_lens
from tests.end_to_end.running_lens import RunningLens, http_get, metrics_body, wait_for
from tests.lens_core.config.test_passwords import is_not_in

__all__ = ["make_lens"]


class Echo(BaseHTTPRequestHandler):
    """Refuses everything, with all that it was sent as its reason."""

    def do_POST(self) -> None:
        """Answer 403 and the headers."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = str(dict(self.headers)).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("password", ["p@ss/w0rd:with#all?100%", "schönes 'Wörter\"buch' \\x", "plainwordpassword"])
def test_no_password_leaves_the_daemon(make_lens: Callable[..., RunningLens], echo: str, password: str) -> None:
    config = (
        "sinks:\n"
        "  store: {type: postgresql, dsn: 'postgresql://lens:${LENS_PW}@localhost:9/lens'}\n"
        f"  token: {{type: http, url: 'http://{echo}/x', required: false, token: '${{LENS_ASCII}}'}}\n"
        f"  header: {{type: http, url: 'http://{echo}/x', required: false, headers: {{X-Key: '${{LENS_ASCII}}'}}}}\n"
        f"  prom: {{type: prometheus, url: 'http://{echo}/x', required: false, headers: {{X-K: '${{LENS_ASCII}}'}}}}\n"
        "  nowhere: {type: http, url: 'http://me:${LENS_PW}@nowhere.invalid/x', required: false}\n"
    )
    plain = password.encode("ascii", "ignore").decode()
    lens = make_lens(config).start(LENS_PW=password, LENS_ASCII=plain)
    lens.post("/wandb/metrics", metrics_body("w", range(3)))

    def all_failed() -> bool:
        sinks = lens.get("/status")["pipelines"][0]["sinks"]
        return all(sink["last_error"] for sink in sinks if sink["name"] != "prom")

    wait_for(all_failed, 240, "an error of each sink")
    said = [http_get(f"{lens.url}{path}").text for path in ("/api/v1/status", "/readyz")]
    said.append(http_get(f"{lens.url}/api/v1/overview").text)
    environment = {"LENS_PW": password, "LENS_ASCII": plain}
    for arguments in (["status"], ["top", "--once"], ["doctor"]):
        said.append(_output([*arguments, "--url", lens.url], environment))
    file = str(lens.data_dir.with_suffix(".yaml"))
    said.append(_output(["validate", file, "--connect"], environment))
    assert "HTTP 403" in said[0]
    assert "not reachable" in said[-1]
    lens.stop()
    said.append(lens.log.read_text())
    is_not_in(password, *said)
    is_not_in(plain, *said)


def _output(arguments: list[str], environment: dict[str, str]) -> str:
    import click

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def whole(words: tuple[str, ...]) -> None:
        """The command as it is called, with what it prints of errors."""
        main([*words])

    done = CliRunner().invoke(whole, ["--", *arguments], env=environment)
    return done.output

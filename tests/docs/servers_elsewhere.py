"""Stand-ins for what pages send to over the internet: W&B, Amazon's Secrets Manager, Datadog's two addresses.

W&B is the collector's own test server, Amazon's is moto's, and Datadog's check what comes with Datadog's own client.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from datadog_api_client.configuration import Configuration
from datadog_api_client.model_utils import validate_and_convert_types
from datadog_api_client.v1.model.dashboard import Dashboard
from moto.server import ThreadedMotoServer

from tests.certificates import write_certificate
from tests.docs.pages import lead_curl

DATADOG = "api.datadoghq.com"


class DatadogApi:
    """`dashboards` are what was created, `points` how many bodies of series came."""

    def __init__(self) -> None:
        self.dashboards: list[Any] = []
        self.series = 0

    def post(self, path: str, keys: set[str], body: bytes) -> int:
        """The status of a POST. A dashboard must be one of Datadog's model."""
        if path == "/api/v2/series":
            self.series += 1
            return 202
        if path != "/api/v1/dashboard" or not {"dd-api-key", "dd-application-key"} <= keys:
            return 403
        self.dashboards.append(dashboard_of(body))
        return 200


def dashboard_of(body: bytes) -> Any:
    """A dashboard of the API, read by Datadog's client. Raises its exceptions."""
    configuration = Configuration()  # type: ignore[no-untyped-call]
    return validate_and_convert_types(  # type: ignore[no-untyped-call]
        json.loads(body), (Dashboard,), ["body"], True, True, configuration
    )


@contextmanager
def datadog(folder: Path) -> Iterator[tuple[DatadogApi, dict[str, str]]]:
    """Datadog's API on loopback over TLS; and the variables and the file with which curl and the sink find it."""
    api = DatadogApi()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(api.post(self.path, {name.lower() for name in self.headers}, body))
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the test looks at what came."""

    certificate, key = write_certificate(folder, DATADOG, DATADOG)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    port = server.server_port
    lead_curl(folder, f"{DATADOG}:443", port, f'cacert = "{certificate}"', "fail")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api, {"DD_URL": f"https://127.0.0.1:{port}", "SSL_CERT_FILE": str(certificate), "DD_API_KEY": "k"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def secrets_manager() -> Iterator[dict[str, str]]:
    """Amazon's Secrets Manager on loopback; the variables with which its clients find it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
    finally:
        server.stop()

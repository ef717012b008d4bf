"""The way from the daemon to `lens_core.cluster`, which only a configuration with a section for it imports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import LensError
from ..config.loading import Config
from ..directory.directory import Directory

if TYPE_CHECKING:
    from ..cluster.cluster import Cluster

MISSING = 'cluster: the client of NATS is missing; pip install "lens-agent[cluster]"'


def make_directory(config: Config) -> Directory:
    """The directory of a daemon; with a cluster one that tells the others. Raises LensError without the client."""
    cluster, grace = config.server.cluster_name, config.server.pod_grace_seconds
    if config.cluster is None:
        return Directory(cluster, grace_seconds=grace)
    try:
        from ..cluster.shared_directory import SharedDirectory
    except ImportError:
        raise LensError(MISSING) from None
    return SharedDirectory(cluster, grace_seconds=grace)


async def join_cluster(config: Config, directory: Directory, files: list[Path]) -> Cluster | None:
    """Connect, check the servers, and take over what all daemons share; None without a cluster. Raises LensError."""
    if config.cluster is None:
        return None
    try:
        from ..cluster.cluster import open_cluster
        from ..cluster.strangers import likeness_of
    except ImportError:
        raise LensError(MISSING) from None
    return await open_cluster(config.cluster, directory, files, likeness_of(config))

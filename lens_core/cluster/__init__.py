"""Several daemons as one: the log is in JetStream, each of its partitions is owned by one daemon at a time.

Imported only where the configuration has a section `cluster`, which needs the extra `lens-agent[cluster]`. Start with
`cluster.py` (the daemon's part of it) and `pipeline.py` (receiving, owning, delivering). Not here: sending and retrying
(`delivery/sending`), detectors (`detection/`).
"""

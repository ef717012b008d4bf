"""Pipelines: the ingest gate, the way from a source to the sinks, and the running of collectors.

Not here: the spool and the senders (`delivery/`). Start with `ingest_gate.py`, then `pipeline.py`.
"""

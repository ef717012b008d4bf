"""The spool: one log of batches per pipeline with a cursor per sink, on disk (SQLite) or in memory.

Not here: sending and retrying (`sending/`). Start with `spool.py`.
"""

"""Sending: one task per sink reads batches from the spool, sends, retries, bisects and commits the cursor.

Not here: the log itself (`spool/`). Start with `sender.py`.
"""

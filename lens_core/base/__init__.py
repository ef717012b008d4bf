"""Foundations that know nothing of Lens' records: errors, secrets, JSON, compression, state files, process settings.

Not here: anything that knows what a record, a plugin or a pipeline is. Start with `errors.py`, the tree of everything
that Lens raises, then `self_metrics.py`, the names of Lens' own metrics.
"""

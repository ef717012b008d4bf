"""Finds what got worse within a job: loss, pace, memory, checkpoints, and restores that were wrong.

Each module holds the pure rules of one subject; `finding.py` is what they answer.
"""

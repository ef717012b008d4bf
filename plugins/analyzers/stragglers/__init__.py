"""Slow ranks: whether one rank, a node, a stage or uneven data holds the others up, or whether nobody can tell.

`verdict.py` judges windows of times per rank; it is pure. Step times of synchronous training say nothing about it.
"""

"""Whole runs of series at once: printed off what went on of them before.

`press` is the way in; it asks the `rack` for a `plate` that fits, prints a part of it (`printing`, `patching`), and has
plates made (`making`) of `runs` that came before.
"""

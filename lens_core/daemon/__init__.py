"""The daemon: builds what a configuration describes and runs it until stopped.

Start with `daemon.py`; `assembly.py` builds the components.
"""

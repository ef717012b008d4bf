"""Detection: what framework a workload runs on, and what its log lines say.

`detectors.py` runs the declared rules over evidence, `verdict.py` fuses their findings, `log_lines/` reads lines. Not
here: the rules themselves, which are detector plugins.
"""

"""The command `lens db`, and the readers of `lens db import`: Lens' exports, MLflow, Primus Lens, W&B's offline runs.

Start with `db.py`. Not here: the sink and the store that the commands work on (`plugin.py`).
"""

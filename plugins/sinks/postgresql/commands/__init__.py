"""The commands `lens db` and `lens import`, and their readers: Lens' exports, MLflow, Primus Lens, W&B's offline runs.

Start with `db.py`. Not here: the sink and the store that the commands work on (`plugin.py`).
"""

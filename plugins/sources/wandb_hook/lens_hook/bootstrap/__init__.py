"""The folder that `lens run` puts on PYTHONPATH; see `sitecustomize.py` beside this file."""

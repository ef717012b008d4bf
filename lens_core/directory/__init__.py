"""The directory of pods, workloads and devices: one index in memory, which a change costs what it changes.

Not here: where its contents come from (collectors and the HTTP API) and how they are written in files
(`model/directory_document.py`). Start with `directory.py`.
"""

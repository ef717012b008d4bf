"""The directory of pods, workloads and devices: one immutable index in memory, replaced as a whole.

Not here: where its contents come from (collectors and the HTTP API) and how they are written in files
(`model/directory_document.py`). Start with `directory.py`.
"""

"""The HTTP server: listener, tokens, ingest, query and status routes, the OpenAPI document, the page.

Not here: what the questions are answered from (the Store contract in `plugin_api/store.py`). Start with `app.py`.
"""

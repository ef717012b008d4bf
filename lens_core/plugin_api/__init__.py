"""The plugin author's interface: all that a plugin may import, and nothing else of Lens.

The common names come from `lens_core` itself. The rest is here, one subject a module: `components` (the kinds of
plugin), `hook_specs` (how they are announced), `store` and `overview` (what a store answers), `sink_answers`,
`log_formats` and `vocabulary` (what a detector declares), `encoding` (bodies, records, JSON with NaN), `protobuf`,
`http_answers`, `urls`, `credentials`, `following` (files that grow), `siblings` (other daemons of a cluster),
`diagnosis`. `lens_core.commands` and `lens_core.logs` hold what needs higher floors.
Not here: how plugins are found and loaded (`plugin_host/`). Start with `components.py`; docs/plugins.md has the table.
"""

"""The plugin author's interface: the kinds of plugin, the hooks, the Store contract, log formats, deprecations.

Plugins import these names from `lens_core` itself. Not here: how plugins are found and loaded (`plugin_host/`). Start
with `components.py`.
"""

"""The plugin host: finds, loads, isolates and describes plugins.

Not here: what a plugin may import (`plugin_api/`). Start with `host.py`.
"""

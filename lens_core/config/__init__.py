"""The configuration: one YAML file (or none) becomes typed settings; every mistake is reported at its place.

Start with `loading.py`. `document.py` parses, `expansion.py` expands variables, `conversion.py` builds settings,
`problems.py` formats what is wrong.
"""

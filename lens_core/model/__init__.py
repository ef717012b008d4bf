"""The data model: records and their envelope, record filters, store questions and answers, the directory document.

Not here: how records are delivered (`delivery/`) or read from logs (`detection/`). Start with `records.py`.
"""

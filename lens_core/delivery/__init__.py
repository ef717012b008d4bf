"""Delivery: the spool, batching, retry, dead letters and the ledgers that must add up."""

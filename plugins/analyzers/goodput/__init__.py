"""The goodput ledger."""

"""Built-in collectors."""

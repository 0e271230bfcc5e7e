"""Bytes and names to arrays and back: one module a kind of file, and no module knows a gate."""

"""Bytes and names to arrays and back: one module for each kind of file; none of them knows a gate."""

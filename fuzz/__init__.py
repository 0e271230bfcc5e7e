"""Attacks on the readers with damaged and hostile files: `python -m fuzz --seconds 60`.

Files of every kind are made when it starts, changed in ways that keep checksums and lengths right, and read. Whatever is
not one of the documented errors, or takes too long or too much memory, is kept with what raised it (fuzz/README.md).
"""

"""Work grows with the size of a file, and not with its square: processor time at one size and at twice that, over every writer and reader."""

from __future__ import annotations



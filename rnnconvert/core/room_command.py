"""A command that a framework's room offers: it turns the file of a whole model into another file.

A room's module `commands` has them as COMMANDS. It is data, and imports nothing of its room: the help lists what every room offers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class RoomCommand(NamedTuple):
    """One command.

    name      its word on the command line
    what      what it does, in half a line, for the list of commands
    summary   what it does, as its own help begins
    examples  its calls, one a line
    notes     a paragraph below them
    function  where the work is done: the full name of a module, a dot, and a function of it. It takes the two paths, `force`,
              `dry_run` and the options; what it returns has `lines()` and `as_dict()`
    source    what the help calls the file that is read
    target    what the help calls the file that is written
    flag      the option that takes the target, "" where it is the second argument
    options   the other options, by the function's keywords: the help text of each. Those named in `files` take a path,
              the others are switches
    files     what the help calls the path that an option takes, by the option
    watched   whether the function takes `watch`, which it calls with how far it is
    """

    name: str
    what: str
    summary: str
    examples: tuple[str, ...]
    notes: str
    function: str
    source: str
    target: str
    flag: str = ""
    options: Mapping[str, str] = {}  # never changed
    files: Mapping[str, str] = {}
    watched: bool = False

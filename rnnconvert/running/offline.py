"""Imported by an executor's process before all else: it leaves the network, where the system lets any process do so.

Models may bring code that their framework runs, and need no network. A process that already has threads cannot leave it.
"""

from __future__ import annotations

import ctypes
import os

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000


def leave() -> None:
    """Move into a separate network, without any device, and stay the same user in it.

    The superuser needs no separate user namespace for that, and would lose the right to read other users' files in it.
    """
    try:
        user, group = os.getuid(), os.getgid()
        if user == 0:
            ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK)
            return
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER | _NEW_NETWORK):
            return
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open("/proc/self/" + name, "w") as file:  # noqa: PTH123  (pathlib comes later)
                file.write(text)
    except (OSError, AttributeError):
        pass


if __name__ == "offline":  # not as a module of the package
    leave()

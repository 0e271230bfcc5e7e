"""Leftovers of a download in the place of a file: a pointer of Git LFS, a web page, an answer that states an error."""

from __future__ import annotations

import re

_POINTER = re.compile(rb"version https?://[\w./-]*(?:git-lfs|hawser)[\w./-]*\r?\n")
"""git-lfs/docs/spec.md: the first line of a pointer; "hawser" before its first release."""
_PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<!--.{,400}?-->\s*)?<(?:!doctype html|html|head)\b", re.I | re.S)
_ANSWER = re.compile(
    rb"""\s*(?:<\?xml[^>]*>\s*<Error>|\{\s*"(?:error|errors|message|detail)"\s*:\s*["\[{]"""
    rb"|(?:404: )?(?:Entry |Repository |File |Page )?not found\b|Invalid (?:username|credentials)|Access denied|(?:403 )?Forbidden\b)",
    re.I,
)
_SHORT = 1 << 10
"""Answers are shorter."""
_REMEDY = "Download the file itself: on a hub, use the download link, not the address of the page."


def instead(head: bytes) -> tuple[str, str] | None:
    """Return the kind of leftover that a file begins like, in place of a model, and what to do; None if it may be a model."""
    if _POINTER.match(head):
        size = re.search(rb"\nsize (\d{1,18})\r?\n", head)
        stated = f" of {int(size[1]):,} bytes" if size else ""
        return (
            f"it is a Git LFS pointer to a file{stated}, not the file itself",
            "Run `git lfs pull` in its repository, or download the file from there.",
        )
    if _PAGE.match(head):
        return "it is a web page, not a model", _REMEDY
    if len(head) < _SHORT and _ANSWER.match(head):
        words = " ".join(head.decode("utf-8", "replace").split())[:100]
        return f"it is a server's answer, not a model: {words!r}", _REMEDY
    return None

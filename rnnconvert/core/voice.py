"""Name what a caller can do in the caller's own words: flags on the command line, keywords in Python.

Texts are composed in the words of the command line. They are spoken in Python's unless the command line runs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

_flags_spoken = [False]

SWITCHES = {
    "force": "force=True", "strict": "strict=True", "verify": "verify=True", "gradients": "gradients=True", "partial": "strict=False",
    "trust-order": "trust_order=True", "assume-defaults": "assume_defaults=True",
}  # fmt: skip
"""Flags without a value, in Python's words."""

KEYWORDS = {
    "from": "source_format", "to": "target_format", "from-a": "format_a", "from-b": "format_b", "dtype": "dtype",
    "layer": "layers", "set": "settings", "set-a": "settings_a", "set-b": "settings_b", "pair": "pairs", "on": "on", "case": "cases",
    "load-inputs": "given", "accept": "accept",
}  # fmt: skip
"""Flags with a value, and the keyword that takes it; of any other flag, its own name."""

_LISTS = ("layer", "set", "set-a", "set-b", "pair", "case", "accept")

_VALUE = r"(?:[^\s;,)`]|,(?=\w))*[^\s;,)`.:?]"
_SETTING = re.compile(rf"--set (?P<layer>[^\s=:,;()]+:)?(?P<key>[a-z_]+)=(?P<value>\.\.\.|{_VALUE}|)")
_OF_A_SIDE = re.compile(rf"--set-(?P<side>[ab]) (?P<setting>[^\s=]+={_VALUE})")
_FLATTEN = re.compile(r"--flatten (?:target|source)=[a-z_]+(?: --flatten (?:target|source)=[a-z_]+)?")
_NAMED = re.compile(
    r"--(?P<flag>from|to|from-a|from-b|dtype|layer|on|case|accept|flatten) (?P<value>[a-z][a-z_0-9]*|NAME)(?![a-z])"
)
_FLAG = re.compile(r"--(?P<flag>[a-z][a-z-]*[a-z])")
# Words that may follow a flag in a sentence, and are no value of it.
_PLAIN = {
    "to", "with", "of", "or", "and", "that", "which", "alone", "for", "is", "was", "where", "them", "if", "in", "as", "names", "decides",
}  # fmt: skip


@contextlib.contextmanager
def of_the_command_line() -> Iterator[None]:
    """Speak of flags and commands, for as long as the command line runs."""
    before, _flags_spoken[0] = _flags_spoken[0], True
    try:
        yield
    finally:
        _flags_spoken[0] = before


def spoken(text: str) -> str:
    """Return a text in the caller's words: `--force` stays so on the command line, and is `force=True` in Python."""
    return text if _flags_spoken[0] or "--" not in text else in_python(text)


def in_python(text: str) -> str:
    """Return a text of the command line with keywords in place of its flags."""
    text = _SETTING.sub(_setting, text)
    text = _OF_A_SIDE.sub(lambda found: f"settings_{found['side']}=[{found['setting']!r}]", text)
    text = _FLATTEN.sub(_flatten, text)
    text = _NAMED.sub(_named, text)
    return _FLAG.sub(_flag, text)


def _setting(found: re.Match[str]) -> str:
    layer, key, value = found["layer"], found["key"], found["value"]
    if layer:
        return f"settings=[{layer + key + '=' + value!r}]"
    if value in ("", "...") or re.fullmatch(r"-?\d+(\.\d+)?", value):
        return f"{key}={value}"
    said = [{"true": "True", "false": "False"}.get(one, repr(one)) for one in value.split("|")]
    return f"{key}={' or '.join(said)}"


def _flatten(found: re.Match[str]) -> str:
    return f"flatten={dict(re.findall('(target|source)=([a-z_]+)', found[0]))}"


def _named(found: re.Match[str]) -> str:
    flag, value = found["flag"], found["value"]
    if value in _PLAIN:
        return f"{_flag(found)} {value}"
    keyword = KEYWORDS.get(flag, flag)
    return f"{keyword}=[{value!r}]" if flag in _LISTS else f"{keyword}={value!r}"


def _flag(found: re.Match[str]) -> str:
    flag = found["flag"]
    if flag in SWITCHES:
        return SWITCHES[flag]
    if flag == "layout":
        return "rnnconvert.add_layouts"
    return KEYWORDS.get(flag, flag.replace("-", "_")) + ("=[...]" if flag in _LISTS else "=")

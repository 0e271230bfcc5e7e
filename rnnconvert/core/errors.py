"""The errors, as types: each names what is affected, what was found, what was expected and what to do.

All derive from `ValueError`. `exit_code` is what the command line returns for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnnconvert.core.remedies import Flag, Together

_SHOWN_PATHS: dict[str, str] = {}


def show_as(path: object, users: object) -> None:
    """Name a temporary file in every message as the file that the user gave."""
    _SHOWN_PATHS[str(path)] = str(users)


# Compiled where they are used: most texts have no URL.
_PASSWORD = r"(?<=://)([^/@:\s]*):[^/@\s]+@"
_QUERY = r"(?i)(?P<url>[a-z][\w+.-]*://[^\s?'\"<>]*)\?(?P<query>[^\s'\"<>#]+)"
_VALUE = r"=[^&]+?(?=[:.,;)]*(?:&|$))"
"""A value of a query, without the sentence's signs after it."""


def without_secrets(text: str) -> str:
    """Return a text without the passwords of its URLs, and without the values of their queries, where tokens and signatures stand."""
    if "://" not in text:
        return text
    text = re.sub(_PASSWORD, r"\1:***@", text)
    return re.sub(_QUERY, lambda url: f"{url['url']}?{re.sub(_VALUE, '=***', url['query'])}", text)


def for_user(text: str) -> str:
    """Return a text in the caller's words, with the user's files in place of the temporary ones that they were unpacked to,
    and without the passwords and keys of URLs.
    """
    for path, users in _SHOWN_PATHS.items():
        text = text.replace(path, users)
    return without_secrets(text)


class RnnConvertError(ValueError):
    """Any error of ours; its text is in the caller's words: a flag on the command line, a keyword in Python.

    exit_code  the one that the command line returns
    kind       its class in one word, for --json
    details    additional lines, which follow the message in `str`
    """

    exit_code = 70
    kind = "error"

    def __init__(self, *args: object, details: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self._details = tuple(details)

    def also(self, *details: str) -> None:
        """Add details, as what another command does about it."""
        self._details += details

    @property
    def details(self) -> tuple[str, ...]:
        """The additional lines of the message."""
        return tuple(map(for_user, self._details))

    @property
    def headline(self) -> str:
        """The message without its details."""
        return for_user(" ".join(map(str, self.args)))

    def __str__(self) -> str:
        return "".join((self.headline, *(f"\n  {detail}" for detail in self.details)))


class AssumptionWarning(UserWarning):
    """A warning of a fact that a function assumed, because arrays in memory, unlike a checkpoint, do not state it."""


class UsageError(RnnConvertError):
    """The call cannot be carried out as it stands: a wrong option, or one that is still needed."""

    exit_code = 2
    kind = "usage"


class UnusedSettingError(UsageError):
    """A setting that decides nothing in a file.

    place  the layer ("" for all) and the key
    """

    def __init__(self, place: tuple[str, str], text: str) -> None:
        self.place = place
        super().__init__(text)


class OutputError(UsageError):
    """A file that cannot be written: a full disk, a folder that may not be written to, a disk that fails."""

    exit_code = 74
    kind = "output"


def unwritable(path: object, error: OSError, remedy: str = "") -> UsageError:
    """Return the error for a path that the system does not write to: OutputError, but for a path whose folder does not exist.

    remedy  what to do, if that is known
    """
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UsageError(f"{path}: cannot write: its folder does not exist. Create it, or choose another path")
    if isinstance(error, FileExistsError | IsADirectoryError):
        return UsageError(f"{path}: cannot write: {error.strerror}. Choose another path")
    return OutputError(f"{path}: cannot write: {error.strerror or error}{remedy}")


class NoSuchLayerError(UsageError, IndexError):
    """A layer or direction, by its number, that a stack does not have: Python's IndexError, too."""


class NoSuchNameError(UsageError, KeyError):
    """A layer, gate or array, by its name, that does not exist: Python's KeyError, too."""


class UnknownWordError(UsageError):
    """A word that names nothing: an option, a format, an executor.

    what   what it should name
    word   the word
    words  those that exist
    """

    def __init__(self, what: str, word: object, words: Sequence[str], advice: str) -> None:
        self.what, self.word, self.words = what, word, tuple(words)
        super().__init__(f"Unknown {what} {word!r}. {advice}")


def not_written(target: object, report: Any) -> str:
    """Say why a converted file was not kept, and what to do where its layers alone are equal."""
    from rnnconvert.core.verdict import BY_LAYER, NOT_COMPARED  # for this error alone: dataclasses take time to import

    if report.verdict == NOT_COMPARED:
        packages = getattr(report, "document", {}).get("missing_packages")
        run = f"To have it verified: pip install {' '.join(packages)}. Or convert" if packages else "Convert"
        return (
            f"{target} was not written: its outputs were not compared with the source's. {run} without {Flag('verify')}, and compare "
            "the weights: rnnconvert diff"
        )
    if report.verdict != BY_LAYER:
        return f"{target} was not written: its outputs are {report.verdict} to the source's"
    return (
        f"{target} was not written: its layers are equal one by one, but what lies between those that were joined was not run. "
        f"Convert without {Flag('verify')}, and compare the outputs of both whole models"
    )


class NotEqualError(RnnConvertError):
    """A converted file that did not compute what its source does, or could not be proved; it was not kept.

    report  what was compared (rnnconvert.Report)
    """

    def __init__(self, target: object, report: Any) -> None:
        self.report = report
        self.exit_code = report.exit_code
        super().__init__(not_written(target, report), details=str(report).splitlines())


class UnreadableError(RnnConvertError):
    """A file that is damaged, hostile, truncated or of no known format.

    path     the file
    problem  what is wrong with it: which tensor or header, what was found, what was expected
    remedy   what the user can do, if anything
    """

    exit_code = 3
    kind = "unreadable"

    def __init__(self, path: object, problem: str, remedy: str = "", details: Sequence[str] = ()) -> None:
        self.path = for_user(str(path))
        self.problem = for_user(problem)
        self.remedy = for_user(remedy)
        super().__init__(f"{path}: {problem}." + (f" {remedy}" if remedy else ""), details=details)


class BudgetError(UnreadableError):
    """A file that takes more work or memory to read than one of its size can need (rnnconvert.containers.reading)."""


class WithoutLayersError(UnreadableError):
    """A file that was read whole and holds no recurrent layer."""


class MissingFileError(UnreadableError, FileNotFoundError):
    """A file that does not exist: Python's FileNotFoundError, too."""

    def __init__(self, path: object) -> None:
        missing, near = Path(str(path)), []
        with contextlib.suppress(OSError):
            import difflib  # for this error alone

            near = difflib.get_close_matches(missing.name, [neighbour.name for neighbour in missing.parent.iterdir()], 1)
        UnreadableError.__init__(self, path, os.strerror(errno.ENOENT), f"Did you mean {missing.with_name(near[0])}?" if near else "")
        self.errno, self.strerror, self.filename = errno.ENOENT, os.strerror(errno.ENOENT), str(path)


def unreadable(path: object, error: OSError) -> UnreadableError:
    """Return the error for a file that the system cannot open or read: MissingFileError for one that does not exist."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError(path)
    return UnreadableError(path, error.strerror or str(error))


class RefusedError(RnnConvertError):
    """A conversion that cannot be done without changing the function that the weights compute.

    feature  what stands in the way, in a few words: "peepholes", "reset gate before the product"
    target   the format that cannot hold it
    reason   the equation that differs and the value that stands in the way
    remedy   what the user can do instead
    layer    the layer it was found in
    """

    exit_code = 4
    kind = "refused"

    def __init__(self, feature: str, target: str, reason: str, remedy: str = "", layer: str = "") -> None:
        self.feature = feature
        self.target = for_user(target)
        self.reason = for_user(reason)
        self.remedy = for_user(remedy)
        self.layer = layer
        where = f"layer {layer!r}: " if layer else ""
        text = f"{where}{target} cannot hold {feature}: {reason}."
        super().__init__(text + (f" {remedy}" if remedy else ""))


class UndecidedError(RefusedError):
    """A conversion that depends on functions which the source does not state, and nobody has decided.

    options    the options that decide them, such as "activation"
    questions  for each, of which layers, what is known, and the answers, as text
    hints      what else is known of the file, such as another one that decides them
    """

    def __init__(self, path: object, options: Sequence[str], questions: Sequence[str], hints: Sequence[str] = ()) -> None:
        self.options = tuple(options)
        self.feature, self.target, self.layer = f"an open question ({', '.join(options)})", str(path), ""
        self.reason = for_user("; ".join(questions))
        self.remedy = for_user(f"Decide it as the model was trained, or take the defaults with {Flag('assume-defaults')}.")
        text = f"{path}: it does not state what its layers compute. {self.remedy}"
        RnnConvertError.__init__(self, text, details=[*questions, *hints])


class UnreadLayersError(RefusedError):
    """A conversion of a whole file of which some recurrent layers cannot be read.

    reasons  what each of them is, and why it is not read
    others   the layers that can be read
    """

    def __init__(self, path: object, reasons: Sequence[str], others: Sequence[str]) -> None:
        self.feature, self.target, self.layer = "recurrent layers that could not be read", str(path), ""
        alike: dict[str, list[str]] = {}
        for name, _, why in (reason.rstrip(".").partition(": ") for reason in reasons):
            alike.setdefault(why, []).append(name)
        texts = [f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}: {why}" for why, names in alike.items()]
        more = f"; and {len(texts) - 5} more" if len(texts) > 5 else ""
        self.reason = "; ".join(texts[:5]) + more
        self.remedy = f"Convert the others: {Together(*(Flag('layer', name) for name in others))}." if others else ""
        text = f"{path}: not every recurrent layer in it can be read. {self.reason}. {self.remedy}"
        RnnConvertError.__init__(self, text.strip())
        self.reason, self.remedy = for_user(self.reason), for_user(self.remedy)


class NotALayerError(Exception):
    """Arrays or objects that look like a recurrent layer are not one, or cannot be read yet.

    The reader that looks for layers catches it and lists the message among what is left.
    """


class MissingPackageError(RnnConvertError):
    """A package or executor that this job needs is not installed here."""

    exit_code = 5
    kind = "missing_package"

    def __init__(self, package: str, purpose: str, remedy: str = "") -> None:
        self.package = package
        install = remedy or f"Install it with: pip install {package}"
        super().__init__(f"{package} is not installed, but it is needed to {purpose}. {install}")


class AbsentExecutorError(MissingPackageError):
    """An executor that was asked for cannot run here: its package, its Python or its GPU is missing."""

    kind = "missing_executor"

    def __init__(self, executor: str, reason: str) -> None:
        self.package = executor
        RnnConvertError.__init__(self, f"{executor} cannot run here: {reason}. List the executors with: rnnconvert executors")


class ExecutorError(RnnConvertError):
    """An executor could not run a model.

    executor  its name
    problem   what it said, or that it said nothing
    trace     the last of what its process printed
    refused   whether it said that its framework does not do this, rather than failed at it
    weights_alone  whether it said that the file holds weights, and no model that could run whole
    """

    kind = "executor_failed"

    def __init__(self, executor: str, problem: str, trace: str = "", refused: bool = False, weights_alone: bool = False) -> None:
        problem = problem if problem.strip() else "it gave no reason"
        self.executor = executor
        self.problem = for_user(problem)
        self.trace = trace
        self.refused, self.weights_alone = refused, weights_alone
        super().__init__(f"{executor} {'does not support this' if refused else 'failed'}: {problem}")


class TransplantError(RnnConvertError):
    """Weights that do not fit into a model; the model is left unchanged.

    target, source  what they are
    problems        everything that does not fit, each in words
    """

    exit_code = 4
    kind = "does_not_fit"

    def __init__(self, target: str, source: str, problems: Sequence[str]) -> None:
        self.target = target
        self.source = source
        self.problems = tuple(map(for_user, problems))
        super().__init__(f"{source} does not fit into {target}, which was left unchanged:", details=problems)

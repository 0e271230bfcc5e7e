"""The statements of TorchScript modules' code that their pickle lacks: constant attributes, and calls with weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rnnconvert.containers.pickle_values import Global
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.zips import Archive
from rnnconvert.core.limits import CLASSES, TEXT_BYTES
from rnnconvert.formats.pytorch import torchscript_code
from rnnconvert.formats.pytorch.metadata import TorchMetadata

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.program.program import OperatorProgram


_CONSTANT = re.compile(r'^  (\w{1,100}) : Final\[\w+\] = (?:(-?\d{1,15}(?:\.\d{0,15})?)|"(\w{0,100})"|(True|False))$', re.MULTILINE)
_SET = re.compile(r"^ +[^\n\"=]*\.(\w+) = ", re.MULTILINE)
"""An attribute that the code sets."""
_END = re.compile(r"^(?:class|  def) ", re.MULTILINE)


class Constants:
    """The constants of an archive's classes, such as `hidden_size : Final[int] = 4`; no code is run.

    Source: torch/csrc/jit/serialization/python_print.cpp.
    """

    def __init__(self, archive: Archive, prefix: str) -> None:
        self._archive = archive
        self._prefix = prefix
        self._attributes: dict[Global, dict[str, Any]] = {}
        self._texts: dict[str, str] = {}
        self._calls: dict[str, dict[str, list[torchscript_code.WeightsCall]]] = {}

    def __call__(self, made_by: Global) -> dict[str, Any]:
        """Return the constants of a class by name; none for a class that is not of the archive's own code."""
        if not made_by.module.startswith("__torch__"):
            return {}
        if made_by not in self._attributes:
            if len(self._attributes) >= CLASSES:
                return {}
            self._attributes[made_by] = self._find(made_by)
        return self._attributes[made_by]

    def calls(self, classes: Mapping[str, Global]) -> Iterator[torchscript_code.WeightsCall]:
        """Yield the calls with weights in the code of each module, by the modules' names and classes."""
        for module, made_by in list(classes.items())[:CLASSES]:
            text = self._text(made_by)
            if made_by.module not in self._calls:
                self._calls[made_by.module] = torchscript_code.calls(text)
            yield from torchscript_code.below(module, self._calls[made_by.module].get(made_by.name, []))

    def follow(
        self, classes: Mapping[str, Global], stored: Stored, fixed: Mapping[str, Callable[[str], Any]] = MappingProxyType({})
    ) -> OperatorProgram | str:
        """Return the operators of the forward of the archive's module, or why these are not followed.

        classes  the classes of its modules, by their names
        fixed    the values of inputs that are plain numbers, by their names: what gives each for an element type
        """
        from rnnconvert.formats.pytorch.program.program import TooLongError
        from rnnconvert.formats.pytorch.script import code_expressions, statements, values
        from rnnconvert.formats.pytorch.script import text as script_text

        texts = [self._text(made_by) for made_by in set(list(classes.values())[:CLASSES])]
        assigned = {name for text in texts for name in _SET.findall(text)}
        unpacked = stored.metadata_as(TorchMetadata).get("unpacked", {})
        sources: dict[str, Any] = {}

        def source(module: str) -> Any:
            if module not in sources:
                sources[module] = script_text.classes_and_functions(self._text(Global(module, "")))
            return sources[module]

        def kind(path: str) -> script_text.Class | None:
            made_by = classes.get(path)
            return None if made_by is None else source(made_by.module)[0].get(made_by.name)

        def function(name: str) -> Any:
            module, _, method = name.rpartition(".")
            attributes, functions = source(module)
            return functions.get(method) or attributes.get(method)

        def attribute(program: OperatorProgram, path: str, name: str) -> Any:
            full = f"{path}.{name}" if path else name
            if name == "_flat_weights":
                return values.Items([program.stored(array) for array in _flat(stored.arrays, full.removesuffix(name))])
            if full in unpacked:
                return values.Items([program.stored(array) for array in unpacked[full]])
            if full in classes:
                return values.ScriptedModule(full)
            if name in assigned:
                raise KeyError(full)
            if full in stored.arrays:
                return program.stored(full)
            value = stored.metadata_as(TorchMetadata)["values"][full]
            return values.Items([*value], attribute=full) if isinstance(value, list) else value

        try:
            return statements.follow(values.ArchiveScope(kind, function, attribute), fixed)
        except (TooLongError, code_expressions.UnreadError) as error:
            return f"the archive's code is not followed: {error}"

    def _text(self, made_by: Global) -> str:
        """Return the source that a class is written in; "" if it is missing, or too long."""
        name = f"{self._prefix}code/{made_by.module.replace('.', '/')}.py"
        if name not in self._archive or self._archive.size(name) > TEXT_BYTES:
            return ""
        if name not in self._texts:
            self._texts[name] = bytes(self._archive.read(name)).decode("utf-8", "replace")
        return self._texts[name]

    def _find(self, made_by: Global) -> dict[str, Any]:
        _, _, body = self._text(made_by).partition(f"class {made_by.name}(Module):\n")
        end = _END.search(body)
        attributes: dict[str, Any] = {}
        for attribute, number, word, flag in _CONSTANT.findall(body, 0, end.start() if end else len(body)):
            if flag:
                attributes[attribute] = flag == "True"
            elif number:
                attributes[attribute] = float(number) if "." in number else int(number)
            else:
                attributes[attribute] = word
        return attributes


def _flat(names: Iterable[str], prefix: str) -> list[str]:
    """Return the names of a recurrent module's own weights, in the order in which it hands them over."""
    return [name for name in names if name.startswith(prefix) and name[len(prefix) :].startswith(("weight_", "bias_"))]

"""One layer's configuration of Keras 1, Keras 2 or tf.keras, as Keras 3 spells it: every key is translated, known to be
harmless, named as left out, or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation
from rnnconvert.files.conservation import Facts
from rnnconvert.formats.keras.config import Era, activation
from rnnconvert.formats.keras.keys import TYPES, problem
from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.formats.keras.upgrade import objects
from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.notes import Notes, Translated, quoted, refuse

_DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
           "mixed_float16", "mixed_bfloat16")  # fmt: skip


def serialised(class_name: str, config: Mapping[str, Any], module: str = "keras.layers") -> dict[str, Any]:
    """Return an object as Keras 3 writes it into a configuration."""
    return {"module": module, "class_name": class_name, "config": dict(config), "registered_name": None}


class Translator:
    """The configurations of one file.

    era    the Keras that wrote it
    dtype  the type of numbers where a layer states none
    """

    def __init__(self, era: Era, dtype: str, notes: Notes) -> None:
        self.era, self.dtype, self.notes = era, dtype, notes
        self._softened = False
        self._layer = ""
        self._renamed: list[str] = []
        self._kinds: dict[str, Callable[[str, Any], Any]] = {
            **{kind: partial(self._typed, kind) for kind in TYPES},
            "flag": self._flag,
            "": self._value,
            "number": self._number,
            "dtype": self._dtype,
            "activation": self.function,
            "function": lambda _, value: value,
            "initializer": self._initializer,
            "regularizer": self._regularizer,
            "constraint": self._constraint,
            "padding": self._padding,
            "ordering": self._ordering,
            "axis": self._axis,
            "interpolation": self._interpolation,
            "forget": lambda _, value: value in ("one", "ones", True),
        }

    def translate(self, name: str, rule: tables.ClassRule, config: Mapping[str, Any]) -> Translated:
        """Return the new configuration of a layer.

        Raises RefusedError for an unknown key or value.
        """
        facts = Facts(name, "its configuration", config)
        self._layer, self._softened, self._renamed = name, False, []
        new: dict[str, Any] = {"name": name, "trainable": True, "dtype": self.dtype, **(rule.fixed or {})}
        for word in f"{tables.COMMON} {rule.keys}".split():
            self._take(facts, word, new)
        if "trainable!" in rule.keys.split():
            del new["trainable"]
        if self._renamed:
            self.notes.change(name, f"keys have new names: {', '.join(self._renamed)}")
        for unknown in facts.unconvertible():
            raise refuse(name, unknown.feature, unknown.reason)
        return Translated(new, self._softened)

    def _take(self, facts: Facts, word: str, new: dict[str, Any]) -> None:
        """Put one key of the table into the new configuration, if the file states it."""
        word, _, kind = word.partition(":")
        old, _, target = word.partition(">")
        if old[-1] in "!~":
            if old[-1] == "~" and facts.get(old[:-1]):
                self.notes.leave(f"{self._layer}: {old[:-1]} = {quoted(facts[old[:-1]])}, for training only")
            facts.take(old[:-1])
            return
        old, stated, neutral = old.partition("=")
        if old not in facts:
            return
        value = facts[old]
        if stated:
            allowed = [json.loads(text) for text in neutral.split("|")]
            if value is not None and value not in allowed:
                either = neutral.replace("|", " or ")
                raise refuse(self._layer, f"{old} = {quoted(value)}", f"only {old} = {either} has an equivalent")
            return
        target = target or old
        converted = self._kinds[kind](old, value)
        if converted is None and kind == "ordering":
            return
        base, _, place = target.partition(".")
        if place:
            listed = new.setdefault(base, [])
            new[base] = [*listed, converted]
        else:
            new[target] = converted
        if old != target:
            self._renamed.append(f"{old} is {base}")

    def _typed(self, kind: str, key: str, value: Any) -> Any:
        """Return a value of the type that the key has."""
        if value is None and kind in ("sizes", "merge"):
            return value
        if wrong := problem(kind, value):
            raise refuse(self._layer, f"{key} = {quoted(value)}", wrong)
        return value

    def _flag(self, key: str, value: Any) -> bool:
        return bool(self._typed("flag", key, value))

    def _value(self, key: str, value: Any) -> Any:
        """Return a number, a name, or lists of these."""
        if _is_plain(value):
            return value
        raise refuse(self._layer, f"{key} = {quoted(value)}", "it is neither a number nor a name nor a list of these")

    def _interpolation(self, key: str, value: Any) -> Any:
        """Return how values between others are found: TensorFlow 1 took other places for them."""
        if value in (None, "nearest"):
            return "nearest"
        version = re.match(r"2\.(\d+)", self.era.text)
        if value == "bilinear" and version is not None and int(version[1]) >= 4:
            return value
        raise refuse(self._layer, f"{key} = {quoted(value)}", "Kerases of that version and Keras 3 take values at other places")

    def _number(self, key: str, value: Any) -> Any:
        """Return a number, which some versions wrote as an array of one."""
        if isinstance(value, Mapping):
            value = value.get("value")
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            return value
        raise refuse(self._layer, f"{key} = {quoted(value)}", "it is not a number")

    def type_of(self, layer: str, value: Any) -> str:
        """Return the type of numbers of a layer, by its name. Raises RefusedError for one that is unknown."""
        self._layer = layer
        return self._dtype("dtype", value)

    def _dtype(self, key: str, value: Any) -> str:
        """Return a type or a policy by its name."""
        if value is None:
            return self.dtype
        inner = value.get("config") if isinstance(value, Mapping) else None
        name = inner.get("name") if isinstance(inner, Mapping) else value
        if isinstance(name, str) and name in _DTYPES:
            return name
        raise refuse(self._layer, f"{key} = {quoted(value)}", "no such type of numbers is known")

    def function(self, key: str, value: Any) -> str:
        """Return the name of a function; the old hard_sigmoid by the name of the new one, and remember it."""
        function = activation(value, self.era)
        if function == HARD_SIGMOID_KERAS_2:
            self._softened = True
            return "hard_sigmoid"
        name = objects.RENAMED_FUNCTIONS.get(function.name, function.name)
        if name in objects.FUNCTIONS and function in (Activation(function.name), activation(function.name, self.era)):
            return name
        raise refuse(
            self._layer,
            f"{key} = {quoted(value)}",
            "no function of that name computes the same there",
            "A function of your own has to be registered and loaded as a custom object.",
        )

    def _padding(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and value not in ("valid", "same", "causal"):
            raise refuse(self._layer, f"{key} = {quoted(value)}", "it has only valid, same and causal")
        return value

    def _ordering(self, key: str, value: Any) -> Any:
        orderings = {"th": "channels_first", "tf": "channels_last", None: None, "default": None}
        if value not in orderings:
            raise refuse(self._layer, f"{key} = {quoted(value)}", "neither th nor tf")
        return orderings[value]

    def _axis(self, key: str, value: Any) -> Any:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, int):
            raise refuse(self._layer, f"{key} = {quoted(value)}", "it normalizes over one axis")
        return value

    def _initializer(self, key: str, value: Any) -> Any:
        initializer = self._object(key, value, objects.INITIALIZERS, objects.INITIALIZER_NAMES, "initializers")
        if isinstance(initializer, dict) and initializer["class_name"] == "VarianceScaling":
            config = initializer["config"]
            config["distribution"] = {"normal": "truncated_normal"}.get(config.get("distribution"), config.get("distribution"))
        default = "Zeros" if "bias" in key or key.startswith(("b_", "beta")) else "GlorotUniform"
        return initializer or serialised(default, {}, "keras.initializers")

    def _regularizer(self, key: str, value: Any) -> Any:
        return self._object(key, value, objects.REGULARIZERS, objects.REGULARIZER_NAMES, "regularizers")

    def _constraint(self, key: str, value: Any) -> Any:
        return self._object(key, value, objects.CONSTRAINTS, objects.CONSTRAINT_NAMES, "constraints")

    def _object(self, key: str, value: Any, table: Mapping[str, str], names: Mapping[str, str], module: str) -> dict[str, Any] | None:
        """Return an object that only training uses; one that is not known is left out with a note."""
        if value is None:
            return None
        if isinstance(value, str):
            value = {"class_name": value, "config": {}}
        config: Any = None
        class_name = ""
        if isinstance(value, Mapping):
            class_name = str(value.get("class_name") or value.get("name") or "")
            config = value.get("config")
            if not isinstance(config, Mapping):
                config = {key_: entry for key_, entry in value.items() if key_ not in ("name", "class_name")}
        class_name = names.get(class_name, class_name)
        if class_name in table:
            spelled = dict(word.partition(">")[::2] for word in table[class_name].split())
            renamed = {spelled[setting] or setting: _plain(entry) for setting, entry in config.items() if setting in spelled}
            aside = {setting: entry for setting, entry in config.items() if setting not in spelled and setting not in ("dtype", "name")}
            if not aside and all(_is_plain(setting) for setting in renamed.values()):
                return serialised(class_name, renamed, f"keras.{module}")
        self.notes.leave(f"{self._layer}: {key} = {quoted(value)}, for training only")
        return None


def _plain(value: Any) -> Any:
    """Return a number that was written as an array of one."""
    return value.get("value") if isinstance(value, Mapping) and "value" in value else value


def _is_plain(value: object, depth: int = 0) -> bool:
    if isinstance(value, list):
        return depth < 4 and all(_is_plain(inner, depth + 1) for inner in value)
    return value is None or isinstance(value, (bool, int, float, str))


def rule_of(layer: Entry) -> tables.ClassRule:
    """Return the rule for the class of a layer. Raises RefusedError for an unknown one."""
    rule = tables.LAYERS.get(layer.class_name)
    if rule is None:
        unknown = "it is not one of the layers whose meaning in both is known" if layer.built_in else "it is not one of Keras's own classes"
        raise refuse(
            layer.name,
            f"a layer of class {layer.class_name!r}",
            tables.CODE.get(layer.class_name, unknown),
            "Replace it by built-in layers in the old model, or convert the recurrent layers alone: rnnconvert convert.",
        )
    return rule

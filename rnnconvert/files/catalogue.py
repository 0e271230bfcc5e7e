"""Every option of readers and writers: the engine's own, and those that frameworks declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rnnconvert.files.conservation import UNACCOUNTED
from rnnconvert.language import registry
from rnnconvert.language.layout import Option

_BOOLEAN = ("true", "false")
_VECTOR = "a flat vector without a description"

_BUILT_IN = {
    option.name: option
    for option in (
        Option("nonlinearity", ("tanh", "relu"), "the function of a plain RNN; tanh by default", each=True),
        Option(
            "activation",
            (),
            "the candidate's function, where a cell has more functions than tanh and relu; tanh by default; for described "
            "layouts one for each direction, as in relu,tanh",
            each=True,
        ),
        Option("forget_bias", (), "what an LSTM adds to its forget gate; 1.0 by default", number="real"),
        Option("cell_clip", (), "the bound of an LSTM's cell state; none by default", number="real"),
        Option("proj_clip", (), "the bound of an LSTM's projection; none by default", number="real"),
        Option("recurrent_activation", (), "the gates' function; for arrays by name, where their layout has several", each=True),
        Option(
            "output_activation",
            ("sigmoid", "tanh", "relu", "linear"),
            "the function that an LSTM's cell state goes through on its way to the output; tanh by default",
        ),
        Option("reset_after", _BOOLEAN, "where a GRU's reset gate is: after the product, or before it"),
        Option("merge_mode", ("concat", "sum", "mul", "ave", "none"), "how two directions are joined"),
        Option("go_backwards", _BOOLEAN, "whether a layer reads from the end"),
        Option("input_forget", ("f", "i", "none"), "which gate an LSTM with coupled gates derives: f = 1 - i, or i = 1 - f"),
        Option("cell", ("lstm", "gru", "rnn_tanh", "rnn_relu"), f"{_VECTOR}: its cell"),
        Option("input_size", (), f"{_VECTOR}: width of the input", number="whole"),
        Option("hidden_size", (), f"{_VECTOR}: units", number="whole"),
        Option("num_layers", (), f"{_VECTOR}: layers; 1 by default", number="whole"),
        Option("bidirectional", _BOOLEAN, f"{_VECTOR}: two directions; false by default"),
        Option("projection_size", (), f"{_VECTOR}: width of the projection; 0 by default", number="whole"),
        Option("input_mode", ("linear", "skip"), f"{_VECTOR}: whether layer 0 has weights for its input"),
        Option(
            "layout",
            (),
            "files of arrays by name: the layout of a layer's arrays where several fit, or the one to write; a name "
            "from `rnnconvert formats`",
            "both",
        ),
        Option(
            "arrays", (), "files without names: which layers begin at which array, as in lstm@0,gru@17; by default found by their shapes"
        ),
        Option("clip", ("none",), "drop the clips of the source: your values never reach the bound"),
        Option(
            UNACCOUNTED,
            ("harmless",),
            "facts of a file that nothing accounts for: you confirm that they do not change what the layer computes",
        ),
        Option("initial_state", ("call",), "leave out learned initial states: you pass them at every call", "write"),
        Option("merge", ("concat",), "leave out how the last layer joins its directions: you join the halves yourself", "write"),
        Option("reverse", ("flipped",), "leave out that a layer reads from the end: you flip inputs and outputs", "write"),
        Option("output_order", ("time",), "leave out that go_backwards outputs are in processing order: you flip the inputs", "write"),
        Option(
            "between",
            ("nothing",),
            "layers that are joined, of a file that states weights and no model: you confirm that nothing lies between them",
            "write",
        ),
        Option("stack", ("join", "split"), "join layers that read one another into one stack, or write each layer by itself", "write"),
        Option("directions", ("split",), "write two directions as two layers", "write"),
        Option(
            "module",
            ("stack", "cell", "optimized", "flat", "gates"),
            "which of a format's ways to store a layer is written: as layers (stack, the default) or as cells",
            "write",
        ),
        Option("prefix", (), "the prefix of the names; the layer's name if there are several, else nothing", "write"),
    )
}
"""The options that belong to no framework. A System states what its framework asks of them, and the options that it alone has."""


class _Catalogue(Mapping[str, Option]):
    """Every option, by its name; the rooms of the frameworks are entered only for one that the engine does not have."""

    def __getitem__(self, name: str) -> Option:
        built_in = _BUILT_IN.get(name)
        return built_in if built_in is not None else self._every()[name]

    def __contains__(self, name: object) -> bool:
        return name in _BUILT_IN or name in self._every()

    def __iter__(self) -> Iterator[str]:
        return iter(self._every())

    def __len__(self) -> int:
        return len(self._every())

    def _every(self) -> dict[str, Option]:
        return {**_BUILT_IN, **{option.name: option for system in registry.systems().values() for option in system.options}}


OPTIONS: Mapping[str, Option] = _Catalogue()
"""Every option, by its name: the engine's own, and those of one framework alone."""


def asked_by(format: str) -> tuple[str, ...]:
    """Return the options that a format's files and its writer ask for, as its System says."""
    system = registry.systems().get(format)
    return () if system is None else (*system.asks, *(option.name for option in system.options))


def explained(name: str) -> str:
    """Return the text on an option: what it decides, and what each format that asks for it means and assumes."""
    option = OPTIONS[name]
    asking: dict[str, list[str]] = {}
    for system in registry.systems().values():
        if option in system.options:
            return f"{system.name}: {option.meaning}"
        if name in system.asks:
            asking.setdefault(system.asks[name], []).append(system.name)
    plain = [", ".join(sorted(asking.pop("")))] if "" in asking else []
    texts = [*plain, *(f"{', '.join(sorted(formats))}: {text}" for text, formats in sorted(asking.items()))]
    return option.meaning + (f". Asked for by {'; '.join(texts)}" if texts else "")

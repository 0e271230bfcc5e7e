"""ONNX models rebuilt in PyTorch: trained ones, and the test vectors of other importers of ONNX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import rnnconvert as rc
from tests.gallery.entry import Arrays, Entry
from tests.gallery.from_keras import array, tensor
from tests.helpers.corpus import GLOW, ONNX, Probe


def sentences() -> Any:
    """Where sentences begin in a text, byte by byte: an embedding, two LSTMs in both directions, a dense layer."""
    from torch import nn

    class Sentences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(256, 32)
            self.first = nn.LSTM(32, 128, bidirectional=True, batch_first=True)
            self.second = nn.LSTM(256, 64, bidirectional=True, batch_first=True)
            self.out = nn.Linear(128, 2)

        def forward(self, text: Any) -> Any:
            return self.out(self.second(self.first(self.embedding(text.int()))[0])[0])

    return Sentences()


def voice() -> Any:
    """Silero's voice detector, as silero_vad_16k.safetensors has it, in PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Voice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stft = nn.Conv1d(1, 258, 256, stride=128, bias=False)
            sizes = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
            self.encoder = nn.ModuleList(nn.Conv1d(a, b, 3, stride=step, padding=1) for a, b, step in sizes)
            self.lstm = nn.LSTMCell(128, 128)
            self.out = nn.Conv1d(128, 1, 1)

        def forward(self, sound: Any, state: Any) -> Any:
            y = self.stft(functional.pad(sound, (0, 64), "reflect")[:, None])
            y = (y[:, :129] ** 2 + y[:, 129:] ** 2).sqrt()
            for convolution in self.encoder:
                y = convolution(y).relu()
            h, c = self.lstm(y[..., 0], (state[0], state[1]))
            return self.out(h.relu()[..., None]).sigmoid().mean(-1), torch.stack([h, c])

    return Voice()


def run_voice(module: Any, recorded: Arrays) -> Arrays:
    speech, state = module(tensor(recorded["in__input"]), tensor(recorded["in__state"]))
    return {"out__output": array(speech), "out__stateN": array(state)}


def mask() -> Any:
    """The first half of DTLN: what to keep of a spectrum."""
    import torch
    from torch import nn

    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.lstm_1 = nn.LSTM(257, 128), nn.LSTM(128, 128)
            self.dense = nn.Linear(128, 257)

        def forward(self, spectrum: Any, states: Any) -> Any:
            h, c = states.permute(3, 1, 0, 2).contiguous()
            y, (h_0, c_0) = self.lstm(spectrum, (h[:1], c[:1]))
            y, (h_1, c_1) = self.lstm_1(y, (h[1:], c[1:]))
            states = torch.stack([torch.cat([h_0, h_1]), torch.cat([c_0, c_1])])
            return self.dense(y).sigmoid(), states.permute(2, 1, 3, 0)

    return Mask()


def run_mask(module: Any, recorded: Arrays) -> Arrays:
    mask, states = module(tensor(recorded["in__input_2"]), tensor(recorded["in__input_3"]))
    return {"out__activation_2": array(mask), "out__tf_op_layer_stack_2": array(states)}


def layers_of(probe: Probe) -> Callable[[], Any]:
    """The recurrent layers of a file, one behind the other, as torch modules with zeros for weights."""

    def build() -> Any:
        import torch
        from torch import nn

        layers = rc.load(probe.file, settings=probe.reading).layers
        modules = nn.ModuleDict()
        for n, name in enumerate(probe.layers):
            options: dict[str, Any] = {"initial_state": "call"} if layers[name].unconvertible else {}
            modules[f"layer_{n}"] = rc.to_torch(layers[name], **options)
        with torch.no_grad():
            for parameter in modules.parameters():
                parameter.zero_()
        return modules

    return build


def run_layers(probe: Probe) -> Callable[[Any, Arrays], Arrays]:
    def run(modules: Any, recorded: Arrays) -> Arrays:
        x = tensor(probe.input())
        initial = probe.initial()
        states = None if initial is None else tuple(map(tensor, initial))
        for module in modules.values():
            several = type(module).__name__.endswith("LSTM")
            x = module(x, states if several or states is None else states[0])[0]
        return {"y": array(x)}

    return run


def _of(probe: Probe) -> Entry:
    options: dict[str, Any] = {"mapping": {f"layer_{n}": name for n, name in enumerate(probe.layers)}, "strict": False}
    if "initial_state=call" in probe.settings:
        options["accept"] = ["initial_state"]
    return Entry(
        probe.path, "torch", layers_of(probe), run_layers(probe), ("y",), options={**options, "settings": probe.reading},
        recorded=lambda: {"y": probe.expected()}, named="+".join(probe.layers),
    )  # fmt: skip


def run_through(x: str, y: str, module: Any, recorded: Arrays) -> Arrays:
    """Outputs of one name for recorded inputs of another."""
    return {y: array(module(tensor(recorded[x])))}


_SILERO = "silero-vad-v6/silero_vad"
_16K = "main/model/decoder/If_1.then_branch//model/decoder/rnn/LSTM"

ENTRIES = (
    *(
        Entry(
            "tract-bidi-lstm/model.onnx", "torch", sentences,
            functools.partial(run_through, x, y), (y,), reference=reference,
        )
        for reference, x, y in (("model.ref.npz", "in__input", "out__output"), ("upstream_io.npz", "input", "Add_26"))
    ),
    Entry(
        f"{_SILERO}_16k_op15.onnx", "torch", voice, run_voice, ("out__output", "out__stateN"),
        options={"mapping": {"lstm": _16K}, "strict": False},
    ),
    Entry(f"{_SILERO}_openvino_16k.onnx", "torch", voice, run_voice, ("out__output", "out__stateN")),
    Entry(
        "dtln-base/model_1.onnx", "torch", mask, run_mask, ("out__activation_2", "out__tf_op_layer_stack_2"),
    ),
    *(_of(probe) for probe in (*ONNX, *GLOW) if "burn" in probe.path or "opencv" in probe.path or "ort" in probe.path),
    *(_of(probe) for probe in GLOW),
)  # fmt: skip

"""Whole models drawn by a seed, written for every target, and run there beside their source.

    python -m tests.helpers.drawn_models [--count 100] [--first 0] [--kinds lstm,gru] [--targets C,ncnn]

prints for each target how many were drawn, equal, refused and wrong, what they were refused for, and the largest difference. Each kind
is a way of drawing: chains of one recurrent cell, amplifiers and modules of PyTorch, chains of all of Keras's layers, graphs of Keras,
and graphs of both whose branches, states and shared layers meet, of lengths that are stated or open.
tests/scaffolding/test_drawn_models.py runs a part of them, with --long all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import rnnconvert as rc
from rnnconvert.models.runners import open_file
from tests.helpers import audio_plugins, model_specs, random_models, random_nets, random_torch, random_torch_graphs
from tests.helpers.exported import RUNS
from tests.helpers.requirements import needed

Arrays = list[Any]
SHAKES = 4
STEPS = {"float32": 2.0**-23, "float16": 2.0**-11}
"""How far two numbers of a type are apart, in parts of them."""
TIMES = 8
"""How many times as far as its source moves a model may be off: weights are not all that is rounded."""


@dataclass(frozen=True)
class Source:
    """A model that was drawn.

    path     its file
    calls    what it reads, call by call
    run      what its framework makes of a call; with an element type and a seed, with every weight moved by half a step of that type
    options  of export_model
    batch    the axis of the batch in each input, if it is not the first one of all
    """

    path: Path
    calls: Sequence[Arrays]
    run: Callable[..., Arrays]
    options: dict[str, Any] = field(default_factory=dict)
    batch: Sequence[int] = ()

    def by_sequence(self) -> Iterator[tuple[Arrays, Arrays]]:
        """Yield what reads one sequence after the other, with the axis of the batch in front, and as the model reads it."""
        for call in self.calls:
            axes = self.batch or [0] * len(call)
            for number in range(call[0].shape[axes[0]]):
                sequence = [x.take([number], axis) for x, axis in zip(call, axes, strict=True)]
                yield [np.moveaxis(x, axis, 0) for x, axis in zip(sequence, axes, strict=True)], sequence


# What is drawn ----------------------------------------------------------------------------------------------


def _shifted(array: Any, dtype: str, rows: int, random: Any) -> Any:
    """A weight moved by half a step; in int8 a row of a matrix has one step, and vectors stay."""
    if dtype == "int8" and array.ndim < 2:
        return array
    others = tuple(axis for axis in range(array.ndim) if axis != rows % array.ndim) if array.ndim else ()
    step = np.abs(array).max(axis=others, keepdims=True) / 127 if dtype == "int8" else np.abs(array) * STEPS[dtype]
    return (array + random.choice([-0.5, 0.5], array.shape) * step).astype(array.dtype)


def of_torch(module: Any, path: Path, calls: Sequence[Any], **options: Any) -> Source:
    """A module that reads one tensor, and its file."""
    import torch

    def run(call: Arrays, dtype: str = "", seed: int = 0) -> Arrays:
        exact, random = {name: value.clone() for name, value in module.state_dict().items()}, np.random.default_rng(seed)
        if dtype:
            moved = {name: torch.from_numpy(np.asarray(_shifted(value.numpy(), dtype, 0, random)))
                     for name, value in exact.items() if value.is_floating_point()}  # fmt: skip
            module.load_state_dict({**exact, **moved})
        with torch.no_grad():
            y = module(*map(torch.from_numpy, call))
        module.load_state_dict(exact)
        return [each.numpy() for each in (y if isinstance(y, tuple) else (y,))]

    return Source(path, [[x] for x in calls], run, options)


def _of_keras(model: Any, path: Path, calls: Sequence[Arrays]) -> Source:
    import keras

    model.save(path)

    def run(call: Arrays, dtype: str = "", seed: int = 0) -> Arrays:
        exact, random = [np.asarray(weight) for weight in model.weights], np.random.default_rng(seed)
        for weight, value in zip(model.weights, exact, strict=True):
            if dtype and value.dtype.kind == "f":
                weight.assign(_shifted(value, dtype, 0 if "embeddings" in weight.path else -1, random))
        y = model(call if len(call) > 1 else call[0], training=False)
        if dtype:
            for weight, value in zip(model.weights, exact, strict=True):
                weight.assign(value)
        return [keras.ops.convert_to_numpy(each) for each in (y if isinstance(y, (list, tuple)) else [y])]

    return Source(path, calls, run)


def _chain_of(cell: str) -> Callable[[int, Path], Source]:
    """Chains around one or two recurrent layers of a kind, some with their input added: of TorchScript, ONNX, Keras and torch.export."""

    def make(seed: int, folder: Path) -> Source:
        spec = model_specs.random_spec(seed, (cell,))
        plain = not any(step[0] in ("last", "mean") for step in spec.steps)
        if plain and spec.weights["head"]["bias"].size == model_specs.INPUT and seed % 8 < 4:
            spec = model_specs.Spec((*spec.steps, ("add", 0)), spec.weights)
        ending = ("pt", "onnx", "keras", "pt2")[seed % 4]
        random, lengths = np.random.default_rng(seed), (6,) if ending == "pt2" else (6, 9)
        calls = [random.normal(size=(3, length, model_specs.INPUT)).astype(np.float32) for length in lengths]
        return of_torch(model_specs.TorchModel(spec).eval(), model_specs.save(spec, folder / f"source.{ending}"), calls)

    return make


def _amplifier(seed: int, folder: Path) -> Source:
    """What plug-ins load: recurrent layers with a dense one behind them, some with their input added, some with more between."""
    import torch

    random = np.random.default_rng(seed)
    cell, units, layers = str(random.choice(["LSTM", "LSTM", "GRU"])), int(random.integers(2, 17)), int(random.choice([1, 1, 2]))
    width = int(random.choice([1, 1, 1, 3]))
    between = str(random.choice(["", "", "", "torch.tanh", "torch.relu"]))
    skip, learned = bool(random.integers(2)), bool(random.integers(4) == 0)

    class Amplifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rec = getattr(torch.nn, cell)(width, units, layers, batch_first=True)
            self.mid = torch.nn.Linear(units, units) if between else torch.nn.Identity()
            self.lin = torch.nn.Linear(units, 1)
            self.begin = torch.nn.ParameterList([torch.zeros(layers, 1, units) for _ in range(1 + (cell == "LSTM"))] if learned else [])

        def forward(self, x: Any) -> Any:
            states = tuple(state.expand(-1, x.shape[0], -1).contiguous() for state in self.begin)
            y = self.rec(x, *([states if cell == "LSTM" else states[0]] if states else []))[0]
            y = {"": lambda y: y, "torch.tanh": torch.tanh, "torch.relu": torch.relu}[between](self.mid(y))
            y = self.lin(y)
            return y + x[:, :, :1] if skip else y

    torch.manual_seed(seed)
    module = Amplifier().eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.uniform_(-0.6, 0.6)
    path = folder / "source.pt"
    torch.jit.trace(module, torch.zeros(2, 6, width)).save(str(path))
    return of_torch(module, path, [random.normal(size=(2, time, width)).astype(np.float32) for time in (40, 7)])


def _module(seed: int, folder: Path) -> Source:
    import torch

    module, embeds = random_torch.module(seed, folder)
    path = folder / "source.pt"
    torch.jit.script(module).save(str(path))
    calls = [random_torch.inputs(embeds, 3, time).numpy() for time in (12, 15)]
    return of_torch(module, path, calls, axes=calls[0].ndim)


def _keras_calls(model: Any, seed: int) -> list[Arrays]:
    """Inputs of two lengths where the model leaves them open; those of two axes are places in tables, whatever their type."""
    lengths = (6, 9) if all(None in tensor.shape[1:] for tensor in model.inputs) else (7,)
    calls = []
    for time_steps in lengths:
        random = np.random.default_rng((seed, time_steps))
        shapes = [tuple(length or time_steps for length in (3, *tensor.shape[1:])) for tensor in model.inputs]
        calls.append([
            random.integers(0, 4, shape).astype(tensor.dtype) if len(shape) == 2 else random.normal(size=shape).astype(np.float32)
            for shape, tensor in zip(shapes, model.inputs, strict=True)
        ])  # fmt: skip
    return calls


def _keras(draw: Callable[[int], Any]) -> Callable[[int, Path], Source]:
    def make(seed: int, folder: Path) -> Source:
        model = draw(seed)
        return _of_keras(model, folder / "source.keras", _keras_calls(model, seed))

    return make


def _torch_graph(seed: int, folder: Path) -> Source:
    """Graphs of torch as a script, as a trace or as a program, which is for one batch or for any."""
    import torch

    module, inputs = random_torch_graphs.module(seed, folder)
    form, random = ("script", "trace", "script", "program")[seed % 4], np.random.default_rng(seed)
    sizes = [(3, 7), *((int(batch), int(steps)) for batch, steps in random.integers(1, 10, (3, 2)))]
    if form == "program":  # torch.export writes out the steps
        sizes = [(batch, 7) for batch, _ in sizes] if seed % 8 == 3 else [*sizes[1:], sizes[0]]
    path, calls = folder / f"source.{'pt2' if form == 'program' else 'pt'}", list[Arrays]()
    for batch, steps in sizes:
        call = random_torch_graphs.call(inputs, random, batch, steps)
        with contextlib.suppress(RuntimeError), torch.no_grad():  # too short for it
            module(*map(torch.from_numpy, call))
            calls.append(call)
    calls = calls[:1] if form == "program" and seed % 8 != 3 else calls
    example = tuple(map(torch.from_numpy, calls[0]))
    if form == "program":
        batch = torch.export.Dim("batch")
        open_axes = tuple({shape[1:-1].split(", ").index("batch"): batch} for _, shape in inputs)
        torch.export.save(torch.export.export(module, example, dynamic_shapes=open_axes if seed % 8 == 3 else None), path)
    elif form == "trace":
        torch.jit.trace(module, example, check_trace=False).save(str(path))
    else:
        torch.jit.script(module).save(str(path))
    source = of_torch(module, path, calls, **({} if form == "program" else {"axes": [x.ndim for x in calls[0]]}))
    return replace(source, calls=calls, batch=[shape[1:-1].split(", ").index("batch") for _, shape in inputs])


def _net(seed: int, folder: Path) -> Source:
    model = random_nets.random_net(seed)
    return _of_keras(model, folder / "source.keras", random_nets.calls(model, seed))


KINDS: dict[str, Callable[[int, Path], Source]] = {
    "lstm": _chain_of("lstm"),
    "gru": _chain_of("gru"),
    "rnn": _chain_of("rnn"),
    "amplifier": _amplifier,
    "module": _module,
    "chain": _keras(random_models.random_chain),
    "graph": _keras(random_models.random_model),
    "net": _net,
    "torch graph": _torch_graph,
}
"""Makes a model of each kind by a seed, in a folder."""


# Where it goes ----------------------------------------------------------------------------------------------


def _by_executor(format: str) -> Callable[[Path], Callable[[Arrays], Arrays]]:
    """What the format's own executor makes of a file: for C a compiler's program."""

    def opened(path: Path) -> Callable[[Arrays], Arrays]:
        file = open_file(format, path)
        return lambda call: list(file.ran([("", x) for x in call], ())[0].outputs)

    return opened


def _rtneural(path: Path) -> Callable[[Arrays], Arrays]:
    """RTNeural itself where it is at hand, with what AIDA-X does around it."""
    if audio_plugins.checkout("RTNEURAL") is None:
        return _by_executor("rtneural")(path)
    skip = json.loads(path.read_text()).get("in_skip", 0)
    return lambda call: [audio_plugins.outputs("RTNEURAL", path, call[0]) + skip * call[0][..., :1]]


def _nam(path: Path) -> Callable[[Arrays], Arrays]:
    if audio_plugins.checkout("NAM") is None:
        return _by_executor("nam")(path)
    return lambda call: [audio_plugins.outputs("NAM", path, call[0])]


def _guitarml(path: Path) -> Callable[[Arrays], Arrays]:
    """SimpleRNN of CoreAudioML, in torch, as its forward has it."""
    torch = needed("torch", "torch")
    document = json.loads(path.read_text())
    about, state = document["model_data"], document["state_dict"]
    words = {"num_layers": about["num_layers"], "batch_first": True}
    rec = getattr(torch.nn, about["unit_type"])(about["input_size"], about["hidden_size"], **words)
    lin = torch.nn.Linear(about["hidden_size"], about["output_size"])
    for name, module in (("rec", rec), ("lin", lin)):
        prefix = f"{name}."
        module.load_state_dict({key.removeprefix(prefix): torch.tensor(value) for key, value in state.items() if key.startswith(prefix)})

    def run(call: Arrays) -> Arrays:
        x = torch.from_numpy(call[0])
        with torch.no_grad():
            y = lin(rec(x)[0])
            return [(y + x[..., : about["skip"]] if about["skip"] else y).numpy()]

    return run


def _read_again(path: Path) -> Callable[[Arrays], Arrays]:
    """What onnxruntime makes of the ONNX that a file is written as, the whole numbers of some of which have 32 bits."""
    back = path.with_suffix(".again.onnx")
    rc.export_model(path, back, force=True)
    run = RUNS["onnx"](back)
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(back), providers=["CPUExecutionProvider"])
    integral = ["int32" in port.type for port in session.get_inputs()]
    return lambda call: run([x.astype(np.int32) if is_integral else x for is_integral, x in zip(integral, call, strict=True)])


@dataclass(frozen=True)
class RunTarget:
    """A form of a file that models are written in.

    file    its name, which decides the format, or `format`
    dtype   of its weights, where it is not float32; settings likewise
    opened  what runs a file; None for the runtime of its ending
    steps   whether a file gives every step, whatever its model gives, of sequences whose batch is in front
    single  whether it has no batch
    """

    file: str
    format: str | None = None
    dtype: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    opened: Callable[[Path], Callable[[Arrays], Arrays]] | None = None
    steps: bool = False
    single: bool = False


_C = _by_executor("c_header")
_READ_AGAIN = {"ONNX": "m.onnx", "C": "m.h", "TFLite": "m.tflite", "OpenVINO": "m.xml", "Core ML": "m.mlpackage", "ncnn": "m.param"}
TARGETS = {
    "ONNX": RunTarget("m.onnx"),
    "OpenVINO": RunTarget("m.xml"),
    "TFLite": RunTarget("m.tflite"),
    "TFLite float16": RunTarget("m.tflite", dtype="float16", options={"dtype": "float16"}),
    "TFLite int8": RunTarget("m.tflite", dtype="int8", options={"dtype": "int8"}),
    "Core ML": RunTarget("m.mlpackage"),
    "ncnn": RunTarget("m.param", single=True),
    "C": RunTarget("m.h", opened=_C),
    "C float16": RunTarget("m.h", dtype="float16", options={"dtype": "float16"}, opened=_C),
    "C int8": RunTarget("m.h", dtype="int8", options={"settings": ["storage=int8"]}, opened=_C),
    **{f"{name}, read again": RunTarget(file, opened=_read_again) for name, file in _READ_AGAIN.items()},
    "TensorFlow.js": RunTarget("m.json", "tfjs"),
    "TensorFlow.js graph": RunTarget("m.json", "tfjs", options={"settings": ["form=graph"]}),
    "RTNeural": RunTarget("m.json", "rtneural", opened=_rtneural, steps=True),
    "AIDA-X": RunTarget("m.aidax", opened=_rtneural, steps=True),
    "GuitarML": RunTarget("m.json", "guitarml", opened=_guitarml, steps=True),
    "NAM": RunTarget("m.nam", opened=_nam, steps=True),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a model in a target.

    status      "equal", "refused" or "wrong"
    cause       what it was refused for, or where it is wrong
    difference  the largest one
    """

    status: str
    cause: str = ""
    difference: float = 0.0


def outcome(source: Source, target: RunTarget, folder: Path) -> Outcome:
    """Write a model, run both, and compare: within rounding, which is measured in the source."""
    path = folder / target.file
    if path.is_dir():
        shutil.rmtree(path)  # a package is never replaced
    try:
        done = rc.export_model(source.path, path, format=target.format, force=True, **source.options, **target.options)
        run = (target.opened or RUNS[path.suffix[1:]])(path)
    except rc.RefusedError as error:
        if target.single and "steps=N" in error.remedy:
            return _of_each_length(source, target, folder)
        if not error.layer and not error.feature:
            return Outcome("wrong", f"a refusal without a name: {error}")
        return Outcome("refused", re.sub(r"\d+", "_", error.feature))
    places = [f"{text.partition(' ')[0]} is a blob of int32" in done.notes for text in done.inputs]
    worst = 0.0
    front = source.batch[0] if target.steps and source.batch else 0
    calls = (([np.moveaxis(x, front, 0) for x in call], call) for call in source.calls)
    for fed, call in source.by_sequence() if target.single else calls:
        gives = run([x.astype(np.int32) if place else x for x, place in zip(fed, places, strict=True)])
        truths = source.run(call)
        if len(gives) != len(truths):
            return Outcome("wrong", f"{len(gives)} outputs for {len(truths)}")
        for number, (value, truth) in enumerate(zip(gives, truths, strict=True)):
            value = value[:, -1] if target.steps and value.ndim > truth.ndim else np.moveaxis(value, 0, front) if front else value
            if target.single and [n for n in value.shape if n > 1] == [n for n in truth.shape if n > 1]:
                value = value.reshape(truth.shape)
            if value.shape != truth.shape:
                return Outcome("wrong", f"output {number} has the shape {value.shape}, not {truth.shape}")
            gap = np.abs(value.astype(np.float64) - truth)
            worst = max(worst, float(gap.max(initial=0)))
            allowed = 1e-5 + 1e-4 * np.abs(truth)
            if target.dtype or not (gap <= allowed).all():
                moved = [source.run(call, target.dtype or "float32", seed)[number] for seed in range(SHAKES)]
                allowed = allowed + TIMES * max(float(np.abs(each - truth).max(initial=0)) for each in moved)
            if not (gap <= allowed).all():
                return Outcome("wrong", f"output {number} is off by {gap.max():.2g}, {(gap / allowed).max():.3g} times what is allowed")
    return Outcome("equal", difference=worst)


def _of_each_length(source: Source, target: RunTarget, folder: Path) -> Outcome:
    """Write a model whose steps are written out for each length that it is called with, and compare."""
    result = Outcome("refused", "no call")
    for call in source.calls:
        options = {**target.options, "settings": [f"steps={call[0].shape[1]}"]}
        result = outcome(replace(source, calls=[call]), replace(target, options=options, single=True), folder)
        if result.status != "equal":
            break
    return result


def outcomes(kind: str, seed: int, targets: Sequence[str], folder: Path) -> Iterator[tuple[str, Outcome]]:
    """Yield what becomes of one model in each target."""
    source = KINDS[kind](seed, folder)
    for name in targets:
        try:
            yield name, outcome(source, TARGETS[name], folder)
        except Exception as error:
            yield name, Outcome("wrong", f"{type(error).__name__}: {error}"[:300])


def main() -> None:
    """Draw, and print what became of the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--targets", default=",".join(TARGETS))
    asked = parser.parse_args()
    targets = re.split(",(?! )", asked.targets)
    for kind in asked.kinds.split(","):
        begun, rows = time.time(), {name: list[Outcome]() for name in targets}
        with contextlib.suppress(KeyboardInterrupt):  # what was drawn until then is printed
            for seed in range(asked.first, asked.first + asked.count):
                # What its framework cannot build, such as a window that is longer than its input, is no model.
                with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ValueError):
                    for name, result in outcomes(kind, seed, targets, Path(folder)):
                        rows[name].append(result)
                        if result.status == "wrong":
                            print(f"{kind} {seed} {name}: {result.cause}", flush=True)
        print(f"\n{kind}, {max(map(len, rows.values()))} models in {time.time() - begun:.0f} s\n")
        print("| target | equal | refused | wrong | largest difference |\n| --- | --- | --- | --- | --- |")
        for name, results in rows.items():
            count = Counter(result.status for result in results)
            most = max((result.difference for result in results), default=0.0)
            print(f"| {name} | {count['equal']} | {count['refused']} | {count['wrong']} | {most:.1e} |")
        for name, results in rows.items():
            causes = Counter(result.cause for result in results if result.status == "refused")
            if causes:
                print(f"{name}: {'; '.join(f'{cause} ({number})' for cause, number in causes.most_common())}")
        print(flush=True)


if __name__ == "__main__":
    main()

"""Whole torch.nn modules."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.zips import entry_names
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.formats.pytorch.live import numbers
from rnnconvert.formats.pytorch.run_program import is_program
from rnnconvert.models.model import Unit
from rnnconvert.models.runners import FileModel, ModelOutputs, Tap, argument_names, moved

NAME = "pytorch"


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return the program of a file that torch.jit.save or torch.export.save wrote.

    Raises UsageError for a file of weights, which holds no code, MissingPackageError without torch.
    """
    names = [*(entry_names(path) or ())]
    scripted = any(re.fullmatch(r"[^/]+/code/.+\.py", name) for name in names)
    exported = is_program(names)
    if not scripted and not exported:
        raise UsageError(f"{path} holds weights without code. Hand in the live module: report.verify(inputs, source=module)")
    return FileModel(path, ["torch-cpu"])


_SENTENCE = re.compile(r"(?<=\.)\s|\n")


def open_chain(path: Path, chain: str) -> FileModel:
    """Return a state dictionary with the layers of a stated chain as a program of torch's own modules.

    Raises UsageError for a file or a layer that torch has no module for, MissingPackageError without torch.
    """
    try:
        from rnnconvert.formats.pytorch import module_chain
    except ImportError:
        raise MissingPackageError("torch", f"run {path}") from None

    def write(program: Path) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of the form in which the executor takes it
                module_chain.program(str(path), chain.split()).save(str(program))
        except Exception as error:  # torch.load raises what it likes
            first = _SENTENCE.split(str(error), maxsplit=1)[0].rstrip(".") or type(error).__name__  # of an error of torch.load, a page
            raise UsageError(f"{path}: {Flag('verify')} builds the chain of torch.nn's layers, and cannot: {first}. Leave it out") from None
        return "the source is the chain as you stated it, of torch.nn's layers: its order and its functions are not proved"

    return FileModel.of_copy(path, ["torch-cpu"], "chain.pt", write)


def run(live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> ModelOutputs:
    """Run the module in evaluation, on the device and in the element type of its parameters."""
    import torch

    if not isinstance(live, torch.nn.Module):
        raise UsageError(
            "a state dictionary holds weights without code. Put it into its module, and verify with that "
            "(report.verify(inputs, source=module) where it is the source)"
        )
    modules = dict(live.named_modules())
    heard: dict[str, list[Any]] = {}
    hooks = []
    for unit in units:
        name, _, number = unit.name.partition("[")
        module = modules.get(name)
        if module is None or (number and int(number.rstrip("]")) != getattr(module, "num_layers", 1) - 1):
            continue

        def hear(_: Any, __: Any, output: Any, name: str = unit.name) -> None:
            heard.setdefault(name, []).append(_copied(output))

        hooks.append(module.register_forward_hook(hear))
    training = [module for module in modules.values() if module.training]
    live.eval()
    begin_anew = getattr(live, "reset_states", lambda: None) if before else lambda: None  # of a class that scaffold wrote
    try:
        with torch.no_grad():
            begin_anew()
            for earlier in before:
                live(*[_tensor(live, array) for array in earlier])
            heard.clear()
            outputs = [tensor.clone() for tensor in _tensors(live(*[_tensor(live, array) for array in inputs]))]
            begin_anew()
    finally:
        for hook in hooks:
            hook.remove()
        for module in training:
            module.training = True
    taps = {unit.name: _tap(modules, unit, heard[unit.name]) for unit in units if unit.name in heard}
    return ModelOutputs(tuple(numbers(tensor) for tensor in outputs), taps)


def input_names(live: Any) -> list[str]:
    """Return the names of forward's arguments."""
    return argument_names(getattr(live, "forward", None))


def saved(live: Any, folder: Path, example: Sequence[Any]) -> Path:
    """Write a module as a program: as torch.jit.script compiles it, of any lengths; if that fails, as torch.export follows an example.

    Raises UsageError if an example is needed.
    """
    import torch

    module = copy.deepcopy(live).cpu().eval()
    try:
        scripted = module if isinstance(module, torch.jit.ScriptModule) else torch.jit.script(module)
    except Exception as error:  # torch.jit raises what it likes
        if not example:
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(
                f"torch.jit.script does not compile this module ({why[:200]}). Hand in example=(its first input, ...): it is then followed "
                "at the lengths of these inputs"
            ) from None
    else:
        scripted.save(folder / "module.pt")
        return folder / "module.pt"
    inputs = tuple(value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value) for value in example)
    torch.export.save(torch.export.export(module, inputs, strict=False), folder / "module.pt2")
    return folder / "module.pt2"


def _copied(output: Any) -> Any:
    """Return a copy of a layer's output: an operator in place may change it later."""
    import torch
    from torch.nn.utils.rnn import PackedSequence

    if isinstance(output, PackedSequence):
        return output._replace(data=output.data.clone())
    if isinstance(output, (list, tuple)):
        return type(output)(map(_copied, output))
    return output.clone() if isinstance(output, torch.Tensor) else output


def _tensor(live: Any, array: Array) -> Any:
    import torch

    first = next((p for p in live.parameters() if p.is_floating_point()), None)
    tensor = torch.from_numpy(np.array(array))
    if first is None:
        return tensor
    return tensor.to(first.device, first.dtype) if tensor.is_floating_point() else tensor.to(first.device)


def _tensors(outputs: Any) -> list[Any]:
    import torch

    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    return [tensor for output in outputs if output is not None for tensor in _tensors(output)]


def _tap(modules: dict[str, Any], unit: Unit, calls: list[Any]) -> Tap:
    """Return the output of a module: the steps of a cell's calls, or the first call of a whole layer."""
    from torch import nn
    from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

    module = modules[unit.name.partition("[")[0]]
    if isinstance(module, nn.RNNCellBase):
        steps = [call[0] if isinstance(call, tuple) else call for call in calls]
        return Tap(np.stack([numbers(step) for step in steps]))
    output = calls[0][0]
    if isinstance(output, PackedSequence):
        padded, lengths = pad_packed_sequence(output)
        return Tap(numbers(padded), lengths=lengths.numpy())
    sequence = numbers(output)
    if sequence.ndim == 2:
        sequence = sequence[:, None]
    elif module.batch_first:
        sequence = sequence.swapaxes(0, 1)
    return Tap(sequence)


def shaken(live: Any, seed: int) -> Any:
    """Return a deep copy with every floating-point parameter and buffer moved."""
    import torch

    clone = copy.deepcopy(live)
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for tensor in {id(t): t for t in (*clone.parameters(), *clone.buffers()) if t.is_floating_point()}.values():
            plain = tensor.detach().cpu().to(torch.float64).numpy()
            tensor.copy_(torch.from_numpy(moved(plain, torch.finfo(tensor.dtype).eps, generator)))
    return clone

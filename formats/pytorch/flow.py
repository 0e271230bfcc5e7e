"""How data flows through torch.nn.Sequential, the only container that shows the order of its modules' calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rnnconvert.models.model import Flat, Unit

_ELEMENTWISE = ("activation", "dropout")
_OVER_SPACE = ("pooling", "padding", "upsampling")
_NORMS = ("batchnorm", "normalization", "instancenorm")
_PRELU = "PReLU"


def is_sequential(module: Any) -> bool:
    """Return whether a module's children are called one after the other, in their order."""
    from torch import nn

    children = [child for child in module.children() if any(True for _ in child.parameters())]
    if not children:
        return True
    in_line = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    if not in_line and (len(children) > 1 or isinstance(module, nn.Sequential)):
        return False
    return all(is_sequential(child) for child in children)


def noting_order(units: Sequence[Unit], module: Any) -> list[Unit]:
    """Return the layers; those in a torch.nn.Sequential note how their input was flattened."""
    reads: dict[str, Flat] = {}
    gives: dict[str, Flat] = {}
    for line in _lines(module, ""):
        _follow(line, reads, gives)
    return [unit.replace(reads=reads.get(unit.name), gives=gives.get(unit.name)) for unit in units]


def _lines(module: Any, name: str) -> Iterator[list[tuple[str, Any]]]:
    """Yield the modules of each Sequential, including modules of the Sequentials in it, in the order of the calls."""
    from torch import nn

    if type(module) is nn.Sequential:
        yield list(_expanded(module, name))
    for child_name, child in module.named_children():
        if type(module) is not nn.Sequential or type(child) is not nn.Sequential:
            yield from _lines(child, f"{name}.{child_name}".lstrip("."))


def _expanded(module: Any, name: str) -> Iterator[tuple[str, Any]]:
    from torch import nn

    for child_name, child in module.named_children():
        path = f"{name}.{child_name}".lstrip(".")
        if type(child) is nn.Sequential:
            yield from _expanded(child, path)
        else:
            yield path, child


def _follow(line: Sequence[tuple[str, Any]], reads: dict[str, Flat], gives: dict[str, Flat]) -> None:
    """Note the layers that read a flattened convolution, and those whose output is cut into channels for one."""
    from torch import nn

    channels = 0  # of a convolution's output
    flat: Flat | None = None
    rows: list[str] = []  # a dense layer, and the norms behind it
    for name, module in line:
        group = type(module).__module__.removeprefix("torch.nn.modules.")
        passing = (*_ELEMENTWISE, *_OVER_SPACE) if channels and flat is None else _ELEMENTWISE
        standard = type(module).__module__.startswith("torch.nn.modules.")
        if standard and (group in _NORMS or type(module).__name__ == _PRELU):
            reads |= {name: flat} if flat is not None else {}
            rows += [name] if rows else []
        elif standard and (group in passing or isinstance(module, nn.Identity)):
            continue
        elif standard and group == "conv":
            channels, flat, rows = module.out_channels, None, []
        elif standard and isinstance(module, nn.Linear):
            reads |= {name: flat} if flat is not None else {}
            channels, flat, rows = 0, Flat(), [name]
        elif type(module) is nn.Flatten and channels and flat is None and _behind_the_batch(module):
            flat = Flat("channels_first", channels)
        elif type(module) is nn.Unflatten and rows and module.dim in (1, -1):
            sizes = list(module.unflattened_size)
            gives |= dict.fromkeys(rows, Flat("channels_first", int(sizes[0]))) if _are_numbers(sizes) else {}
            channels, flat, rows = int(sizes[0]) if _are_numbers(sizes) else 0, None, []
        else:
            channels, flat, rows = 0, None, []


def _behind_the_batch(module: Any) -> bool:
    return (module.start_dim, module.end_dim) == (1, -1)


def _are_numbers(sizes: Sequence[object]) -> bool:
    return len(sizes) > 1 and all(isinstance(size, int) and size > 0 for size in sizes)

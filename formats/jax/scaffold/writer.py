"""The text of a Flax nnx module: its class, and what stands around it."""

from __future__ import annotations

import re

from rnnconvert.formats.jax.scaffold import helpers
from rnnconvert.formats.jax.scaffold.layers import RULES
from rnnconvert.scaffolding.text import Style
from rnnconvert.scaffolding.writer import File, Module


class NnxModule(Module):
    """One class: a model of the source."""

    TITLE = "Flax"
    ATTRIBUTES = frozenset({"eval", "iter_children", "iter_modules", "perturb", "set_attributes", "sow", "train"})  # of nnx.Module
    VARIABLES = frozenset({"jax", "jnp", "nnx", "state", *helpers.TEXTS})
    SEPARATOR = "/"
    FORGETTING = "{of}[...] = jnp.zeros_like({of}[...])"

    def text(self, name: str, first: bool) -> str:
        """Return the class."""
        lines = [f"class {name}(nnx.Module):", f'    """{self.title(first)}"""', "", "    def __init__(self, rngs):"]
        lines += [f"        self.{part} = {constructor}" for part, constructor in self.parts.values()] or ["        pass"]
        lines += [f"        self.{state} = {start}  # kept from one call to the next" for state, start in self.states.items()]
        lines += [
            "",
            f"    def __call__(self, {', '.join(self.arguments)}):",
            *(f"        {line}" for line in (*self.checking(first), *self.lines)),
        ]
        lines += [f"        return {', '.join(self(value) for value in self.scope.outputs)}", *self.forgetting()]
        return "\n".join(lines) + "\n"


def _imports(file: File, body: str) -> list[str]:
    lines = ["import jax"] if re.search(r"\bjax\.", body) else []
    return [*lines, "import jax.numpy as jnp", "from flax import nnx"]


_LOAD = '''def load(path{more}):
    """Return the model with the weights of the file that it was written from{others}."""
    model = {model}(nnx.Rngs(0))
    model.eval()
{written}    from rnnconvert import load_into

    load_into(model, path{layers}, accept=["all"], flatten="same"{options})
    return model
'''
_UPDATE = """
state = nnx.state(model, nnx.Not(nnx.Any(nnx.RngState, nnx.Cache)))
nnx.replace_by_pure_dict(state, arrays)
nnx.update(model, state)"""
_RESTORES = {
    ".msgpack": f"""from flax.serialization import msgpack_restore

with open(path, "rb") as file:
    arrays = msgpack_restore(file.read()){_UPDATE}""",
    ".safetensors": f"""from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file

arrays = unflatten_dict(load_file(path), sep="/"){_UPDATE}""",
}
_MAIN = '''def main():
    """Run the model on zeros, with the weights of a file if one is named."""
    model = load({words}) if len(sys.argv) > 1 else {model}(nnx.Rngs(0))
    model.eval()
    outputs = model({zeros})
    for output in outputs if isinstance(outputs, tuple) else [outputs]:
        print(tuple(output.shape))


if __name__ == "__main__":
    main()
'''

STYLE = Style(
    NnxModule,
    RULES,
    helpers.TEXTS,
    frozenset({"jax", "jnp", "nnx"}),
    lambda word: word,
    _imports,
    _LOAD,
    _RESTORES,
    _MAIN,
    lambda sizes, dtype: f"jnp.zeros(({sizes})" + (")" if dtype == "float32" else f', "{dtype}")'),
    "with weights of Flax's own, it needs Flax alone.",
)

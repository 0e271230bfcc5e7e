"""Operations on the numbers of one step: what they give, and their C."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from rnnconvert.core.limits import AXES, SIZE
from rnnconvert.formats.c_header import checks
from rnnconvert.formats.c_header.program import Across, OperationKind, Settings, Shapes, Spelling, StepProgram, StepValues


def _dense_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.whether(not x.size % s["width"], "the width of a dense layer")
    return [StepValues(x.size // s["width"] * s["units"], x.time)]


def _dense(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    outer = read[0].size // s["width"]
    yield "int i, j;"
    indent = ""
    if outer > 1:
        yield f"int k; for (k = 0; k < {outer}; k++) {{"
        indent = "    "
    x, y = (f"x0 + k * {s['width']}", f"y0[k * {s['units']} + j]") if outer > 1 else ("x0", "y0[j]")
    x = f"({x})" if outer > 1 else x
    yield f"{indent}for (j = 0; j < {s['units']}; j++) {{"
    yield f"{indent}    {w.real} sum = {w.get('b', 'j') if s['bias'] else 0};"
    yield from w.summed("W", "j", str(s["width"]), x, f"{indent}    ")
    yield f"{indent}    {y} = sum;"
    yield f"{indent}}}"
    if outer > 1:
        yield "}"


def _product_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(len(read) == 2, "a product of two matrices")
    x, y = read
    checks.whether(y.size == s["matrices"] * s["width"] * s["units"] and not x.size % (s["matrices"] * s["width"]), "matrices that fit")
    return [StepValues(x.size // s["width"] * s["units"], program.joined([x.time, y.time]))]


def _product(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield products of matrices: each of so many is that of as many rows."""
    width, units, rows = s["width"], s["units"], read[0].size // s["width"]
    place = f" + k / {rows // s['matrices']} * {width * units}" if s["matrices"] > 1 else ""
    yield "int i, j, k;"
    yield f"for (k = 0; k < {rows}; k++) for (j = 0; j < {units}; j++) {{"
    yield f"    const {w.real} *x = x0 + k * {width}, *y = x1{place} + j;"
    yield f"    {w.real} sum = 0;"
    yield f"    for (i = 0; i < {width}; i++) sum += x[i] * y[i * {units}];"
    yield f"    y0[k * {units} + j] = sum;"
    yield "}"


def _embedding(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i, j;"
    yield f"for (j = 0; j < {read[0].size}; j++) {{"
    yield f"    const int row = !(x0[j] > 0) ? 0 : x0[j] > {s['rows'] - 1} ? {s['rows'] - 1} : (int)x0[j];"
    value = w.get("table", f"(size_t)row * {s['width']} + i") + w.times_scale("table", "row")
    yield f"    for (i = 0; i < {s['width']}; i++) y0[j * {s['width']} + i] = {value};"
    yield "}"


FUNCTIONS: Mapping[str, str] = {
    "relu": "({x} < 0 ? 0 : {x})", "linear": "{x}", "sigmoid": "rnnconvert_sigmoid{f}({x})", "tanh": "rnnconvert_tanh{f}({x})",
    "exponential": "exp{f}({x})", "exp": "exp{f}({x})",
    "selu": "({x} > 0 ? {1.0507009873554805} * {x} : {1.7580993408473766} * expm1{f}({x}))",
    "softplus": "(({x} > 0 ? {x} : 0) + log1p{f}(exp{f}(-fabs{f}({x}))))", "softsign": "{x} / (1 + fabs{f}({x}))", "abs": "fabs{f}({x})",
    "sqrt": "sqrt{f}({x})", "rsqrt": "1 / sqrt{f}({x})", "log": "log{f}({x})", "neg": "-{x}", "square": "{x} * {x}",
    "reciprocal": "1 / {x}", "hard_swish": "{x} * RNNCONVERT_CLAMP({x} / 6 + {0.5})", "hard_sigmoid": "RNNCONVERT_CLAMP({x} / 6 + {0.5})",
    "elu": "({x} > 0 ? {x} : {a} * expm1{f}({x}))", "celu": "({x} > 0 ? {x} : {a} * expm1{f}({x} / {a}))",
    "leaky_relu": "({x} > 0 ? {x} : {a} * {x})", "relu6": "({x} < 0 ? 0 : {x} > 6 ? 6 : {x})", "silu": "{x} * rnnconvert_sigmoid{f}({x})",
    "gelu": "{0.5} * {x} * (1 + erf{f}({x} * {0.70710678118654752}))",
    "gelu_tanh": "{0.5} * {x} * (1 + rnnconvert_tanh{f}({0.79788456080286536} * ({x} + {0.044715} * {x} * {x} * {x})))",
    "mish": "{x} * tanh{f}(({x} > 0 ? {x} : 0) + log1p{f}(exp{f}(-fabs{f}({x}))))", "erf": "erf{f}({x})", "sin": "sin{f}({x})",
    "cos": "cos{f}({x})", "tan": "tan{f}({x})", "asin": "asin{f}({x})", "acos": "acos{f}({x})", "atan": "atan{f}({x})",
    "sinh": "sinh{f}({x})", "cosh": "cosh{f}({x})", "asinh": "asinh{f}({x})", "acosh": "acosh{f}({x})", "atanh": "atanh{f}({x})",
    "floor": "floor{f}({x})", "ceil": "ceil{f}({x})", "round": "rint{f}({x})", "sign": "({x} > 0) - ({x} < 0)", "not": "{x} == 0",
    "truth": "{x} != 0", "towards_zero": "trunc{f}({x})",
}  # fmt: skip
"""Functions of one number x; a is their constant."""


def _function(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    text = FUNCTIONS[s["function"]]
    words = {"x": "x", "f": w.end, "a": w.number(1.0 if s["alpha"] is None else s["alpha"])}
    text = re.sub(r"\{([^{}]*)\}", lambda match: words.get(match[1]) or ("" if match[1] == "f" else w.number(float(match[1]))), text)
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) {{"
    yield f"    {w.real} x = ({w.real})x0[i];" if read[0].integral else f"    {w.real} x = x0[i];"
    yield f"    y0[i] = ({w.real})({text});"
    yield "}"


def _softmax(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a softmax over groups of numbers that lie so far apart."""
    width, inner = s["width"], s["inner"]
    yield "int i, j;"
    yield f"for (j = 0; j < {read[0].size // width}; j++) {{"
    start = f"j / {inner} * {width * inner} + j % {inner}" if inner > 1 else f"j * {width}"
    step = f"i * {inner}" if inner > 1 else "i"
    yield f"    const {w.real} *x = x0 + ({start});"
    yield f"    {w.real} *y = y0 + ({start}), most = x[0], sum = 0;"
    yield f"    for (i = 1; i < {width}; i++) most = x[{step}] > most ? x[{step}] : most;"
    if s["log"]:
        yield f"    for (i = 0; i < {width}; i++) sum += {w.call('exp', f'x[{step}] - most')};"
        yield f"    sum = {w.call('log', 'sum')};"
        yield f"    for (i = 0; i < {width}; i++) y[{step}] = x[{step}] - most - sum;"
    else:
        yield f"    for (i = 0; i < {width}; i++) sum += y[{step}] = {w.call('exp', f'x[{step}] - most')};"
        yield f"    for (i = 0; i < {width}; i++) y[{step}] /= sum;"
    yield "}"


def _grouped_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.whether(not x.size % (s["width"] * s.get("inner", 1)), "the width of a group of numbers")
    return [StepValues(x.size, x.time)]


def _affine(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    place = f"(i / {s['inner']}) % {s['width']}" if read[0].size > s["width"] else "i"
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[i] * {w.get('scale', place)} + {w.get('shift', place)};"


def _slopes(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    place = f"(i / {s['inner']}) % {s['width']}" if read[0].size > s["width"] else "i"
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[i] > 0 ? x0[i] : x0[i] * {w.get('slope', place)};"


def _norm(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    width, outer = s["width"], read[0].size // s["width"]
    yield "int i, j;"
    yield f"for (j = 0; j < {outer}; j++) {{"
    yield f"    const {w.real} *x = x0 + j * {width};"
    yield f"    {w.real} *y = y0 + j * {width}, sum = 0{', mean = 0' if s['centred'] else ''}, by;"
    centred = "x[i]"
    if s["centred"]:
        yield f"    for (i = 0; i < {width}; i++) mean += x[i];"
        yield f"    mean /= {width};"
        centred = "(x[i] - mean)"
    yield f"    for (i = 0; i < {width}; i++) sum += {centred} * {centred};"
    if s["unit"]:
        yield f"    by = {w.call('sqrt', 'sum')};"
        yield f"    by = 1 / (by > {w.number(s['epsilon'])} ? by : {w.number(s['epsilon'])});"
    else:
        inner = f"sum / {width} + {w.number(s['epsilon'])}"
        yield f"    by = 1 / {w.call('sqrt', inner)};"
    text = f"{centred} * by" + (f" * {w.get('scale', 'i')}" if s["scale"] else "") + (f" + {w.get('shift', 'i')}" if s["shift"] else "")
    yield f"    for (i = 0; i < {width}; i++) y[i] = {text};"
    yield "}"


COMBINED: Mapping[str, str] = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}", "power": "pow{f}({0}, {1})",
    "maximum": "({0} > {1} ? {0} : {1})", "minimum": "({0} < {1} ? {0} : {1})", "equal": "{0} == {1}", "not_equal": "{0} != {1}",
    "greater": "{0} > {1}", "greater_equal": "{0} >= {1}", "less": "{0} < {1}", "less_equal": "{0} <= {1}",
    "remainder": "{0} - {1} * floor{f}({0} / {1})", "remainder towards zero": "fmod{f}({0}, {1})",
    "and": "{0} != 0 && {1} != 0", "or": "{0} != 0 || {1} != 0", "xor": "({0} != 0) != ({1} != 0)",
    "where": "({0} != 0 ? {1} : {2})",
}  # fmt: skip
"""Operations on numbers at the same place of several values."""


def _combined_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    shapes = [operand for operand in s["operands"] if isinstance(operand, list)]
    checks.whether(len(shapes) == len(read) and shapes, "how many values are combined")
    checks.whether(len(s["operands"]) == (3 if s["operation"] == "where" else 2), "how many operands are combined")
    shape = _spread(shapes)
    for operand, value in zip(shapes, read, strict=True):
        checks.whether(math.prod(operand) == value.size, "the shape of what is combined")
    return [StepValues(math.prod(shape), program.joined([value.time for value in read]))]


def _spread(shapes: Sequence[Sequence[int]]) -> list[int]:
    """Return the shape of values that spread over one another. Raises ValueError where they do not."""
    rank = max(map(len, shapes))
    wide = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    result = [max(lengths) for lengths in zip(*wide, strict=True)]
    checks.whether(all(length in (1, most) for shape in wide for length, most in zip(shape, result, strict=True)), "shapes that do not fit")
    return result


def _place(lengths: Sequence[int], shape: Sequence[int]) -> str:
    """Return the place in a value of the number at place i of a shape that it spreads over."""
    lengths = [1] * (len(shape) - len(lengths)) + list(lengths)
    if lengths == list(shape):
        return "i"
    terms, stride, inner = [], 1, 1
    for length, most in zip(reversed(lengths), reversed(shape), strict=True):
        if length > 1:
            place = f"i / {inner}" if inner > 1 else "i"
            place = place if inner * most == math.prod(shape) else f"{place} % {most}"
            terms.append(f"({place})" + (f" * {stride}" if stride > 1 else ""))
        stride, inner = stride * length, inner * most
    return " + ".join(terms) or "0"


def _combined(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    shape = _spread([operand for operand in s["operands"] if isinstance(operand, list)])
    words, number = [], 0
    for operand in s["operands"]:
        if isinstance(operand, list):
            words.append(f"x{number}[{_place(operand, shape)}]")
            number += 1
        else:
            words.append(w.number(operand))
    yield "int i;"
    text = COMBINED[s["operation"]].replace("{f}", w.end).format(*words)
    yield f"for (i = 0; i < {math.prod(shape)}; i++) y0[i] = ({w.real})({text});"


def _joined_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(read and all(not value.size % s["outer"] for value in read), "what is joined")
    return [StepValues(sum(value.size for value in read), program.joined([value.time for value in read]))]


def _joined(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    outer, width = s["outer"], sum(value.size for value in read) // s["outer"]
    yield "int i;"
    place = 0
    for number, value in enumerate(read):
        inner = value.size // outer
        where = f"i / {inner} * {width} + {place} + i % {inner}" if outer > 1 else f"{place} + i" if place else "i"
        yield f"for (i = 0; i < {value.size}; i++) y0[{where}] = x{number}[i];"
        place += inner


def _strided_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    first, last = sorted((s["start"], s["start"] + (s["count"] - 1) * (-s["step"] if s["back"] else s["step"])))
    beyond = {"constant": SIZE, "edge": SIZE, "reflect": s["length"] - 1, None: 0}[s["outside"]]
    checks.whether(not x.size % (s["length"] * s["inner"]) and first >= -beyond and last < s["length"] + beyond, "what is taken of an axis")
    return [StepValues(x.size // s["length"] * s["count"], x.time)]


def _strided(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a slice of one axis, with more places at its ends."""
    count, inner, length = s["count"], s["inner"], s["length"]
    outer = read[0].size // (length * inner)
    yield "int i;"
    row = f"({s['start']} {'-' if s['back'] else '+'} i / {inner} % {count} * {s['step']})"
    rest = f" * {inner} + i % {inner}" + (f" + i / {count * inner} * {length * inner}" if outer > 1 else "")
    if s["outside"] is None:
        yield f"for (i = 0; i < {outer * count * inner}; i++) y0[i] = x0[{row}{rest}];"
        return
    yield f"for (i = 0; i < {outer * count * inner}; i++) {{"
    yield f"    int at = {row};"
    yield from (f"    {line}" for line in beyond(w, s, "y0[i]", f"x0[at{rest}]", str(length)))
    yield "}"


BEYOND: Mapping[str, str] = {
    "edge": "at = at < 0 ? 0 : at >= {n} ? {n} - 1 : at;",
    "reflect": "at = at < 0 ? -at : at >= {n} ? 2 * ({n} - 1) - at : at;",
}
"""The place `at` of an axis of length n that stands for one beyond its ends."""


def beyond(w: Spelling, s: Settings, y: str, x: str, length: str) -> Iterator[str]:
    """Yield the statements that assign the number at the place `at` of an axis, or what stands beyond its ends."""
    if s["outside"] == "constant":
        yield f"{y} = at < 0 || at >= {length} ? {w.number(s['number'])} : {x};"
    else:
        yield from ([BEYOND[s["outside"]].replace("{n}", length)] if s["outside"] else [])
        yield f"{y} = {x};"


def _turned_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.whether(math.prod(s["shape"]) == x.size and sorted(s["order"]) == list(range(len(s["shape"]))), "axes in another order")
    return [StepValues(x.size, x.time)]


def _turned(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    strides = [math.prod(s["shape"][axis + 1 :]) for axis in range(len(s["shape"]))]
    lengths = [s["shape"][axis] for axis in s["order"]]
    terms = []
    for place, axis in enumerate(s["order"]):
        inner = math.prod(lengths[place + 1 :])
        terms.append(f"i / {inner} % {lengths[place]} * {strides[axis]}")
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[{' + '.join(terms) or '0'}];"


def _repeated_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.whether(not x.size % s["inner"], "what is repeated")
    return [StepValues(x.size * s["count"], x.time)]


def _repeated(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield groups of numbers, each several times."""
    inner, count = s["inner"], s["count"]
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size * count}; i++) y0[i] = x0[i / {inner * count} * {inner} + i % {inner}];"


def _pooled_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x, across = checks.single(read), Across(*s["across"])
    checks.whether(not x.size % (across.length * s["inner"]), "an axis that windows move over")
    return [StepValues(x.size // across.length * across.windows, x.time)]


def _pooled(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a pool of the windows over an axis of a step."""
    across, inner = Across(*s["across"]), s["inner"]
    yield "int i, j;"
    yield f"for (j = 0; j < {read[0].size // across.length * across.windows}; j++) {{"
    yield f"    const {w.real} *x = x0 + j / {across.windows * inner} * {across.length * inner} + j % {inner};"
    yield f"    {w.real} sum = {'-INFINITY' if s['operation'] == 'max' else '0'};"
    yield "    int count = 0;"
    yield f"    for (i = 0; i < {across.kernel}; i++) {{"
    yield f"        const int at = {across.place(f'j / {inner} % {across.windows}', 'i')};"
    yield from (f"        {line}" for line in across.outside("at"))
    yield f"        {fold_in('max' if s['operation'] == 'max' else 'sum', 'sum', f'x[at * {inner}]')}"
    yield "        count++;"
    yield "    }"
    yield f"    y0[j] = {pooled(w, s, across.kernel)};"
    yield "}"


def pooled(w: Spelling, s: Settings, kernel: int) -> str:
    """Return what a pool makes of the `sum` of a window and the `count` of its places that were not added."""
    result = "sum" if s["operation"] == "max" else f"sum / {kernel}" if s["counted"] else f"sum / ({w.real})count"
    return f"count ? {result} : sum"


FOLDED = ("mean", "sum", "max", "min", "any", "all")


def _folded_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.whether(not x.size % (s["length"] * s["inner"]), "an axis that is reduced")
    return [StepValues(x.size // s["length"], x.time)]


def _folded(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a reduction of one axis of a step."""
    length, inner, operation = s["length"], s["inner"], s["operation"]
    yield "int i, j;"
    yield f"for (j = 0; j < {read[0].size // length}; j++) {{"
    start = f"j / {inner} * {length * inner} + j % {inner}" if inner > 1 else f"j * {length}"
    step = f"i * {inner}" if inner > 1 else "i"
    yield f"    {w.real} sum = x0[{start}];"
    value = f"x0[{start} + {step}]"
    yield f"    for (i = 1; i < {length}; i++) {fold_in(operation, 'sum', value)}"
    yield f"    y0[j] = {'sum / ' + str(length) if operation == 'mean' else 'sum'};"
    yield "}"


def fold_in(operation: str, name: str, value: str) -> str:
    """Return the statement that adds a number to a reduction."""
    if operation in ("mean", "sum"):
        return f"{name} += {value};"
    return f"if ({value} {'>' if operation in ('max', 'any') else '<'} {name}) {name} = {value};"


def _stored_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(not read and name, "stored numbers")
    return [StepValues(s["size"])]


def _stored(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i;"
    yield f"for (i = 0; i < {s['size']}; i++) y0[i] = {w.get('numbers', 'i')};"


def _full_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    return [StepValues(s["size"], x.time)]


def _full(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i;"
    yield "(void)x0;"
    yield f"for (i = 0; i < {s['size']}; i++) y0[i] = {w.number(s['number'])};"


def _alike(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    return [StepValues(x.size, x.time)]


def _with_bias(s: Settings, shapes: Shapes) -> Shapes:
    return {**shapes, "b": (s["units"],)} if s["bias"] else shapes


def _norm_arrays(s: Settings) -> Shapes:
    return {word: (s["width"],) for word in ("scale", "shift") if s[word]}


OUTSIDE = {"outside": checks.perhaps(checks.among("constant", *BEYOND)), "number": checks.number}
"""What stands beyond the ends of an axis, None if nothing does, and the number that does."""

STEP_KINDS: Mapping[str, OperationKind] = {
    "dense": OperationKind(
        {"width": checks.count, "units": checks.count, "bias": checks.truth},
        _dense_gives,
        _dense,
        arrays=lambda s: _with_bias(s, {"W": (s["units"], s["width"])}),
    ),
    "product": OperationKind(dict.fromkeys(("width", "units", "matrices"), checks.count), _product_gives, _product),
    "embedding": OperationKind(
        {"rows": checks.count, "width": checks.count},
        lambda program, s, read, name: [StepValues(checks.single(read).size * s["width"], read[0].time)],
        _embedding,
        arrays=lambda s: {"table": (s["rows"], s["width"])},
    ),
    "function": OperationKind({"function": checks.among(*FUNCTIONS), "alpha": checks.perhaps(checks.real)}, _alike, _function),
    "softmax": OperationKind({"width": checks.count, "inner": checks.count, "log": checks.truth}, _grouped_gives, _softmax),
    "affine": OperationKind(
        {"width": checks.count, "inner": checks.count},
        _grouped_gives,
        _affine,
        arrays=lambda s: {"scale": (s["width"],), "shift": (s["width"],)},
    ),
    "slopes": OperationKind(
        {"width": checks.count, "inner": checks.count}, _grouped_gives, _slopes, arrays=lambda s: {"slope": (s["width"],)}
    ),
    "norm": OperationKind(
        {
            "width": checks.count,
            "epsilon": checks.real,
            "centred": checks.truth,
            "unit": checks.truth,
            "scale": checks.truth,
            "shift": checks.truth,
        },
        _grouped_gives,
        _norm,
        arrays=_norm_arrays,
    ),
    "combined": OperationKind({"operation": checks.among(*COMBINED), "operands": checks.operands}, _combined_gives, _combined),
    "joined": OperationKind({"outer": checks.count}, _joined_gives, _joined),
    "taken": OperationKind(
        {
            "length": checks.count,
            "inner": checks.count,
            "start": checks.offset,
            "step": checks.count,
            "count": checks.count,
            "back": checks.truth,
            **OUTSIDE,
        },
        _strided_gives,
        _strided,
    ),
    "turned": OperationKind(
        {"shape": checks.counts, "order": lambda value: isinstance(value, list) and len(value) <= AXES and all(map(checks.index, value))},
        _turned_gives,
        _turned,
    ),
    "repeated": OperationKind({"inner": checks.count, "count": checks.count}, _repeated_gives, _repeated),
    "folded": OperationKind({"length": checks.count, "inner": checks.count, "operation": checks.among(*FOLDED)}, _folded_gives, _folded),
    "pooled": OperationKind(
        {"inner": checks.count, "across": checks.across, "operation": checks.among("max", "average"), "counted": checks.truth},
        _pooled_gives,
        _pooled,
    ),
    "stored": OperationKind({"size": checks.count}, _stored_gives, _stored, arrays=lambda s: {"numbers": (s["size"],)}),
    "full": OperationKind({"size": checks.count, "number": checks.real}, _full_gives, _full),
}
"""The operations on the numbers of one step."""

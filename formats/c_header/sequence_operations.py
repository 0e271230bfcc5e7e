"""Operations on sequences: with what they keep from step to step, or over all steps at once; what they give, and their C."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rnnconvert.formats.c_header import checks
from rnnconvert.formats.c_header.program import Across, OperationKind, Settings, Shapes, Spelling, StepProgram, StepValues, TimeAxis
from rnnconvert.formats.c_header.step_operations import FOLDED, OUTSIDE, STEP_KINDS, beyond, fold_in, pooled

# Steps that keep something from those before


def _recurrent_form(s: Settings) -> str:
    return "reversed" if s["backwards"] else "kept"


def _recurrent_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(name in program.layers, "a recurrent layer without arrays")
    width, out, cell = program.layers[name]
    checks.whether(s["cell"] == bool(cell), f"the states of {name!r}")
    states = [out, cell] if cell else [out]
    expected = [width] + [1] * s["masked"] + states * s["begun"]
    checks.whether([value.size for value in read] == expected, f"what the recurrent layer {name!r} reads")
    x, *others = read
    checks.whether(x.time is not None and not x.integral, f"the recurrent layer {name!r} reads no sequence of numbers")
    checks.whether(all(value.time is None for value in others[s["masked"] :]), f"the initial states of {name!r} have steps")
    if s["masked"]:
        program.joined([x.time, others[0].time])
    ends = [StepValues(size) for size in states] if s["ends"] else []
    return [StepValues(out, x.time if s["sequences"] else None), *ends]


def _recurrent_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.name}_state layer;"
    if s["begun"]:
        yield "int begun;"
    if s["masked"]:
        yield f"{w.real} y[{w.name.upper()}_OUTPUT];"


def _recurrent(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    first = 1 + s["masked"]
    if s["begun"]:
        yield "if (!s->begun) {"
        for number, word in zip(range(first, len(read)), "hc", strict=False):
            yield f"    memcpy(s->layer.{word}, x{number}, sizeof s->layer.{word});"
        yield "    s->begun = 1;"
        yield "}"
    if not s["masked"]:
        yield f"{w.name}_step(x0, &s->layer, y0);"
    else:
        yield f"if (x1[0] != 0) {w.name}_step(x0, &s->layer, s->y);"
        if s["zero"]:
            yield "else memset(s->y, 0, sizeof s->y);"
        yield "memcpy(y0, s->y, sizeof s->y);"
    if s["ends"]:
        for number, word in enumerate("hc" if s["cell"] else "h"):
            yield f"memcpy(y{number + 1}, s->layer.{word}, sizeof s->layer.{word});"


def _cell_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(name in program.layers, "a cell without arrays")
    width, out, cell = program.layers[name]
    checks.whether(s["cell"] == bool(cell), f"the states of {name!r}")
    states = [out, cell] if cell else [out]
    checks.whether([value.size for value in read] == [width, *(states if len(read) > 1 else [])], f"what the cell {name!r} reads")
    time = program.joined([value.time for value in read])
    return [StepValues(size, time) for size in (out, *states)]


def _cell(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield one step of a recurrent layer from states that it reads; zeros where it reads none."""
    yield f"{w.name}_state at;"
    if len(read) == 1:
        yield "memset(&at, 0, sizeof at);"
    for number, word in zip(range(1, len(read)), "hc", strict=False):
        yield f"memcpy(at.{word}, x{number}, sizeof at.{word});"
    yield f"{w.name}_step(x0, &at, y0);"
    for number, word in enumerate("hc" if s["cell"] else "h"):
        yield f"memcpy(y{number + 1}, at.{word}, sizeof at.{word});"


def _conv_form(s: Settings) -> str:
    reach = (s["kernel"] - 1) * s["dilation"] + 1
    if s["stride"] > 1 or s["pads"] != [reach - 1, 0]:
        return "whole"
    return "kept" if reach > 1 else "each"


def _windowed(program: StepProgram, x: StepValues, s: Settings, reach: int) -> int:
    """Return the time axis of windows."""
    time = checks.time(x, "windows of no sequence")
    pads = None if s["pads"] is None else (s["pads"][0], s["pads"][1])
    if s["stride"] == 1 and pads is None:
        return time
    return program.windowed(TimeAxis(None, time, reach, s["stride"], pads))


def _conv_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x, across = checks.single(read), _across(s)
    checks.whether(
        x.size == s["channels"] * math.prod(axis.length for axis in across)
        and not s["channels"] % s["groups"]
        and not s["filters"] % s["groups"],
        "what a convolution reads",
    )
    time = x.time if _conv_form(s) == "each" else _windowed(program, x, s, (s["kernel"] - 1) * s["dilation"] + 1)
    return [StepValues(s["filters"] * math.prod(axis.windows for axis in across), time)]


def _across(s: Settings) -> list[Across]:
    """Return the windows over the axes of a step."""
    return [Across(*axis) for axis in s["across"]]


def _conv_arrays(s: Settings) -> Shapes:
    taps = s["kernel"] * math.prod(axis.kernel for axis in _across(s))
    shapes: Shapes = {"W": (s["filters"], taps * s["channels"] // s["groups"])}
    return {**shapes, "b": (s["filters"],)} if s["bias"] else shapes


def _conv_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} seen[{((s['kernel'] - 1) * s['dilation'] + 1) * read[0].size}];"


def _conv(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a convolution over the steps and over axes of each of them, whose channels are in front of these axes or behind them."""
    channels, kernel, size, across, form = s["channels"], s["kernel"], read[0].size, _across(s), _conv_form(s)
    width, per, reach = channels // s["groups"], s["filters"] // s["groups"], (kernel - 1) * s["dilation"] + 1
    places, size_given = math.prod(axis.length for axis in across), s["filters"] * math.prod(axis.windows for axis in across)
    group = f" + j / {per} * {width * (places if s['first'] else 1)}" if s["groups"] > 1 else ""
    over = "".join(f"for (q{n} = 0; q{n} < {axis.windows}; q{n}++) " for n, axis in enumerate(across))
    if form == "whole":
        yield from _padded(s, reach)
        yield "for (t = 0; t < m; t++) {"
    elif form == "kept":
        yield f"memmove(s->seen, s->seen + {size}, sizeof s->seen - {size} * sizeof s->seen[0]);"
        yield f"memcpy(s->seen + {(reach - 1) * size}, x0, {size} * sizeof s->seen[0]);"
    yield f"    {w.real} *y = y0{f' + t * {size_given}' if form == 'whole' else ''};"
    yield f"    int i, j, k{''.join(f', a{n}, q{n}' for n in range(len(across)))};"
    yield f"    for (j = 0; j < {s['filters']}; j++) {over}{{"
    yield f"        {w.real} sum = 0;"
    yield f"        for (k = 0; k < {kernel}; k++) {{"
    if form == "whole":
        yield f"            const size_t p = t * {s['stride']} + (size_t)k * {s['dilation']};"
        yield f"            const {w.real} *x;"
        yield "            if (p < before || p - before >= n0) continue;"
        yield f"            x = x0 + (p - before) * {size}{group};"
    else:
        begin = f"s->seen + k * {s['dilation'] * size}" if form == "kept" else "x0"
        yield f"            const {w.real} *x = {begin}{group};"
    for n, axis in enumerate(across):
        yield f"            for (a{n} = 0; a{n} < {axis.kernel}; a{n}++) {{"
        yield f"            const int at{n} = {axis.place(f'q{n}', f'a{n}')};"
        yield from (f"            {line}" for line in axis.outside(f"at{n}"))
    weight = _joint([("j", 1), ("k", kernel), *((f"a{n}", axis.kernel) for n, axis in enumerate(across)), ("i", width)])
    at = [(f"at{n}", axis.length) for n, axis in enumerate(across)]
    read_at = _joint([("i", 1), *at] if s["first"] else [*at, ("i", channels)])
    yield f"            for (i = 0; i < {width}; i++) sum += {w.get('W', weight)} * x[{read_at}];"
    yield f"        {'}' * (1 + len(across))}"
    text = f"sum{w.times_scale('W', 'j')}" + (f" + {w.get('b', 'j')}" if s["bias"] else "")
    window = [(f"q{n}", axis.windows) for n, axis in enumerate(across)]
    yield f"        y[{_joint([('j', 1), *window] if s['first'] else [*window, ('j', s['filters'])])}] = {text};"
    yield "    }"
    if form == "whole":
        yield "}"


def _joint(places: Sequence[tuple[str, int]]) -> str:
    """Return the place of a number by its places along axes, each with its length, the slowest first."""
    text = places[0][0]
    for name, length in places[1:]:
        text = f"{f'({text})' if '+' in text else text} * {length} + {name}"
    return text


def _padded(s: Settings, reach: int) -> Iterator[str]:
    """Yield the declaration of how many steps windows begin before the first."""
    yield "size_t t;"
    if s["pads"] is None:
        yield f"const size_t over = (m - 1) * {s['stride']} + {reach}, before = over > n0 ? (over - n0) / 2 : 0;"
    else:
        yield f"const size_t before = {s['pads'][0]};"


def _pool_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    return [StepValues(x.size, _windowed(program, x, s, (s["kernel"] - 1) * s["dilation"] + 1))]


def _pool(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    size, kernel = read[0].size, s["kernel"]
    yield from _padded(s, (kernel - 1) * s["dilation"] + 1)
    yield "for (t = 0; t < m; t++) {"
    yield "    int i;"
    yield f"    for (i = 0; i < {size}; i++) {{"
    yield "        size_t k, count = 0;"
    yield f"        {w.real} sum = {'-INFINITY' if s['operation'] == 'max' else '0'};"
    yield f"        for (k = 0; k < {kernel}; k++) {{"
    yield f"            const size_t p = t * {s['stride']} + k * {s['dilation']};"
    yield "            if (p < before || p - before >= n0) continue;"
    yield f"            {fold_in('max' if s['operation'] == 'max' else 'sum', 'sum', f'x0[(p - before) * {size} + i]')}"
    yield "            count++;"
    yield "        }"
    yield f"        y0[t * {size} + i] = {pooled(w, s, kernel)};"
    yield "    }"
    yield "}"


def _over_time_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x, *mask = read
    checks.whether(
        x.time is not None and len(mask) == s.get("masked", 0) and all(value.size == 1 for value in mask), "what is reduced over time"
    )
    program.joined([x.time, *(value.time for value in mask)])
    return [StepValues(x.size)]


def _over_time_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} sum[{read[0].size}];"
    yield f"{w.real} count;"


def _over_time(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a reduction of all steps so far."""
    size, operation = read[0].size, s["operation"]
    yield "int i;"
    yield f"for (i = 0; i < {size}; i++) {{"
    indent = "    "
    if s["masked"]:
        yield "    if (x1[0] != 0) {"
        indent = "        "
    value = "x0[i]"
    yield f"{indent}if (s->count == 0) s->sum[i] = {value};"
    yield f"{indent}else {fold_in(operation, 's->sum[i]', value)}"
    if s["masked"]:
        yield "    }"
    yield "}"
    yield "s->count += 1;" if not s["masked"] else "s->count += x1[0] != 0;"
    yield f"for (i = 0; i < {size}; i++) y0[i] = s->sum[i]{' / s->count' if operation == 'mean' else ''};"


def _step_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.time(x, "a step of no sequence")
    return [StepValues(x.size)]


def _last(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[i];"


def _first(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield the first step: later ones leave it."""
    size = read[0].size
    yield "int i;"
    yield f"if (!s->begun) for (i = 0; i < {size}; i++) s->first[i] = x0[i];"
    yield "s->begun = 1;"
    yield f"for (i = 0; i < {size}; i++) y0[i] = s->first[i];"


def _first_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} first[{read[0].size}];"
    yield "int begun;"


# The states of a loop: what a step begins with, and what it leaves for the next one


def _state_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(len(read) == 2 and read[0].time is not None and read[1].time is None, "the state of a loop")
    return [StepValues(read[1].size, read[0].time)]


def _state_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} state[{read[1].size}];"
    yield "int begun;"


def _state(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "(void)x0;"
    yield "if (!s->begun) memcpy(s->state, x1, sizeof s->state);"
    yield "s->begun = 1;"
    yield "memcpy(y0, s->state, sizeof s->state);"


def _left_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(len(read) == 2 and read[0].size == read[1].size and read[0].time is not None, "what a step of a loop leaves")
    program.joined([value.time for value in read])
    return [StepValues(read[0].size)]


def _left(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "(void)x1;"
    yield "memcpy(s->state, x0, sizeof s->state);"
    yield "memcpy(y0, x0, sizeof s->state);"


def _number_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    return [StepValues(1, checks.time(checks.single(read), "the numbers of steps"))]


def _number(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "(void)x0;"
    yield "y0[0] = s->count;"
    yield "s->count += 1;"


def _until_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    checks.whether(len(read) == 2 and read[0].size == 1 and read[0].time is None and read[1].time is not None, "what counts steps")
    return [StepValues(1, read[1].time)]


def _until_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} count;"


def _until(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield whether a step is among the first so many."""
    yield "(void)x1;"
    yield f"y0[0] = s->count < ({w.real})x0[0];"
    yield "s->count += 1;"


# Whole sequences


def _flip(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    size = read[0].size
    yield "size_t t;"
    yield "int i;"
    yield f"for (t = 0; t < n0; t++) for (i = 0; i < {size}; i++) y0[(n0 - 1 - t) * {size} + i] = x0[t * {size} + i];"


def _softmax_of_steps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a softmax over the steps, for each number of a step by itself."""
    size = read[0].size
    yield "size_t t;"
    yield "int i;"
    yield f"for (i = 0; i < {size}; i++) {{"
    yield f"    {w.real} most = x0[i], sum = 0;"
    yield f"    for (t = 1; t < n0; t++) most = x0[t * {size} + i] > most ? x0[t * {size} + i] : most;"
    power = w.call("exp", f"x0[t * {size} + i] - most")
    if s["log"]:
        yield f"    for (t = 0; t < n0; t++) sum += {power};"
        yield f"    sum = {w.call('log', 'sum')};"
        yield f"    for (t = 0; t < n0; t++) y0[t * {size} + i] = x0[t * {size} + i] - most - sum;"
    else:
        yield f"    for (t = 0; t < n0; t++) sum += y0[t * {size} + i] = {power};"
        yield f"    for (t = 0; t < n0; t++) y0[t * {size} + i] /= sum;"
    yield "}"


def _same_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    return [StepValues(x.size, checks.time(x, "a sequence"))]


def _flat_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    length = (None if x.time is None else program.length(x.time)) or 0
    checks.whether(length and not x.size % s["inner"], "a sequence of any length as so many numbers")
    return [StepValues(x.size * length)]


def _flat(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield the steps as an axis in front of the inner ones."""
    size, inner = read[0].size, s["inner"]
    yield "size_t t;"
    yield "int i;"
    where = f"((size_t)i / {inner} * n0 + t) * {inner} + (size_t)i % {inner}"
    yield f"for (t = 0; t < n0; t++) for (i = 0; i < {size}; i++) y0[{where}] = x0[t * {size} + i];"


def _steps_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.whether(x.time is None and not x.size % (s["length"] * s["inner"]), "numbers as steps")
    program.axes.append(TimeAxis(s["length"]))
    return [StepValues(x.size // s["length"], len(program.axes) - 1)]


def _as_steps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield an axis in front of the inner ones as steps."""
    size, inner = read[0].size // s["length"], s["inner"]
    yield "size_t t;"
    yield "int i;"
    where = f"((size_t)i / {inner} * m + t) * {inner} + (size_t)i % {inner}"
    yield f"for (t = 0; t < m; t++) for (i = 0; i < {size}; i++) y0[t * {size} + i] = x0[{where}];"


def _again_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = checks.single(read)
    checks.whether(x.time is None, "what is repeated has steps")
    program.axes.append(TimeAxis(s["length"]))
    return [StepValues(x.size, len(program.axes) - 1)]


def _again(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    size = read[0].size
    yield "size_t t;"
    yield "int i;"
    yield f"for (t = 0; t < m; t++) for (i = 0; i < {size}; i++) y0[t * {size} + i] = x0[i];"


def _some_steps_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x, pads = checks.single(read), (s["ends"][0], s["ends"][1])
    time = checks.time(x, "some steps of no sequence")
    length = program.length(time)
    checks.whether(s["outside"] is not None or max(pads) <= 0, "steps beyond the ends")
    checks.whether(s["outside"] != "reflect" or (length or 0) > max(pads), "a reflection of more steps than a sequence is sure to have")
    axis = program.windowed(TimeAxis(None, time, 1, s["step"], pads, s["by"]))
    checks.whether(program.length(axis) != 0, "no step is left")
    return [StepValues(x.size, axis)]


def _some_steps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield steps so far apart, each several times, with more of them at the ends."""
    size, by = read[0].size, f" / {s['by']}" if s["by"] > 1 else ""
    yield "size_t t;"
    yield "int i;"
    yield "(void)n0;"
    yield "for (t = 0; t < m; t++) {"
    yield f"    long at = (long)(t{by} * {s['step']}) - ({s['ends'][0]});"
    yield f"    for (i = 0; i < {size}; i++) {{"
    yield from (f"        {line}" for line in beyond(w, s, f"y0[t * {size} + i]", f"x0[at * {size} + i]", "(long)n0"))
    yield "    }"
    yield "}"


def _over_sequences(s: Settings) -> str:
    return "whole"


def _with_memory(s: Settings) -> str:
    return "kept"


KINDS: Mapping[str, OperationKind] = {
    **STEP_KINDS,
    "recurrent": OperationKind(
        {
            "backwards": checks.truth,
            "turned": checks.truth,
            "sequences": checks.truth,
            "zero": checks.truth,
            "masked": checks.truth,
            "begun": checks.truth,
            "ends": checks.truth,
            "cell": checks.truth,
        },
        _recurrent_gives,
        _recurrent,
        _recurrent_form,
        keeps=_recurrent_keeps,
        why="reads its sequence from the end",
    ),
    "cell": OperationKind({"cell": checks.truth}, _cell_gives, _cell),
    "conv": OperationKind(
        {
            "channels": checks.count,
            "filters": checks.count,
            "kernel": checks.count,
            "stride": checks.count,
            "dilation": checks.count,
            "groups": checks.count,
            "bias": checks.truth,
            "pads": checks.pads,
            "across": checks.several_across,
            "first": checks.truth,
        },
        _conv_gives,
        _conv,
        _conv_form,
        _conv_arrays,
        _conv_keeps,
        "is a convolution that looks ahead, or skips steps",
    ),
    "pool": OperationKind(
        {
            "operation": checks.among("max", "average"),
            "kernel": checks.count,
            "stride": checks.count,
            "dilation": checks.count,
            "pads": checks.pads,
            "counted": checks.truth,
        },
        _pool_gives,
        _pool,
        _over_sequences,
        why="pools over windows of steps",
    ),
    "over time": OperationKind(
        {"operation": checks.among(*FOLDED), "masked": checks.truth}, _over_time_gives, _over_time, _with_memory, keeps=_over_time_keeps
    ),
    "last": OperationKind({}, _step_gives, _last, _with_memory),
    "first": OperationKind({}, _step_gives, _first, _with_memory, keeps=_first_keeps),
    "until": OperationKind({}, _until_gives, _until, _with_memory, keeps=_until_keeps),
    "number": OperationKind({}, _number_gives, _number, _with_memory, keeps=_until_keeps),
    "state": OperationKind({}, _state_gives, _state, lambda settings: "state", keeps=_state_keeps),
    "left": OperationKind({}, _left_gives, _left, lambda settings: "state", leaves=1),
    "flip": OperationKind({}, _same_gives, _flip, _over_sequences, why="turns the sequence round"),
    "softmax of steps": OperationKind(
        {"log": checks.truth}, _same_gives, _softmax_of_steps, _over_sequences, why="weighs the steps by one another"
    ),
    "flat": OperationKind({"inner": checks.count}, _flat_gives, _flat, _over_sequences, why="joins the numbers of all steps"),
    "as steps": OperationKind(
        {"length": checks.count, "inner": checks.count}, _steps_gives, _as_steps, _over_sequences, why="makes steps of numbers"
    ),
    "again": OperationKind({"length": checks.count}, _again_gives, _again, _over_sequences, why="repeats what comes of a whole sequence"),
    "some steps": OperationKind(
        {"step": checks.count, "by": checks.count, "ends": checks.ends, **OUTSIDE},
        _some_steps_gives,
        _some_steps,
        _over_sequences,
        why="takes some of the steps, or adds others",
    ),
}
"""The operations that there are."""

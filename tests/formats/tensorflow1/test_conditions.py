"""Conditions of frozen graphs that are decided, loops of stated lengths, and what is taken by places, against what TensorFlow computes."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.helpers import drawn
from tests.helpers.requirements import needed

Tensor = Any


class Graph:
    """A graph of TensorFlow's in the making, and its session."""

    def __init__(self, build: Callable[[Any], Tensor]) -> None:
        self.tf = needed("tensorflow", "tensorflow")
        self.graph = self.tf.Graph()
        with self.graph.as_default():
            self.tf.identity(build(self.tf), name="out")

    def save(self, path: Path, *ends: str) -> Path:
        """Write what the output needs, and other ends, as graphs are frozen."""
        frozen = self.tf.compat.v1.graph_util.extract_sub_graph(self.graph.as_graph_def(), ["out", *ends])
        path.write_bytes(frozen.SerializeToString())
        return path

    def run(self, feeds: Mapping[str, Any]) -> Any:
        with self.tf.compat.v1.Session(graph=self.graph) as session:
            return session.run("out:0", {f"{name}:0": value for name, value in feeds.items()})


def written(path: Path, target: Path, **options: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Export a graph; return what runs the model that was written."""
    rc.export_model(path, target, force=True, **options)
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(target))
    return lambda feeds: session.run(None, dict(feeds))[0]


def condition(tf: Any, rng: random.Random, deep: int) -> Tensor:
    """A truth of constants, of an input with a default, and of one without."""
    graph = tf.compat.v1.get_default_graph()
    kind = rng.choice(["true", "false", "training", "given", *(["not", "and", "or"] if deep else [])])
    if kind in ("training", "given"):
        return graph.get_tensor_by_name(f"{kind}:0")
    if kind in ("true", "false"):
        return tf.constant(kind == "true")
    if kind == "not":
        return tf.logical_not(condition(tf, rng, deep - 1))
    join = tf.logical_and if kind == "and" else tf.logical_or
    return join(condition(tf, rng, deep - 1), condition(tf, rng, deep - 1))


def branched(tf: Any, rng: random.Random, x: Tensor, deep: int) -> Tensor:
    """Sums and products, with conditions among them, which are Switches and Merges."""
    for _ in range(rng.randrange(1, 4)):
        if deep and rng.random() < 0.7:
            truth = condition(tf, rng, 2)
            no, yes = tf.raw_ops.Switch(data=x, pred=truth)
            x = tf.raw_ops.Merge(inputs=[branched(tf, rng, no, deep - 1), branched(tf, rng, yes, deep - 1)]).output
        else:
            x = rng.choice([tf.add, tf.multiply])(x, tf.constant(np.float32(rng.uniform(0.5, 2))))
    return x


@pytest.mark.parametrize("number", range(12))
def test_the_branch_that_is_taken_is_written(number: int, tmp_path: Path) -> None:
    rng = random.Random(f"{drawn.SEED} conditions {number}")
    default, answer = rng.random() < 0.5, rng.random() < 0.5

    def build(tf: Any) -> Tensor:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 3], "x")
        v1.placeholder_with_default(default, [], "training")
        v1.placeholder(tf.bool, rng.choice([[], None]), "given")
        return branched(tf, rng, tf.add(branched(tf, rng, x, 2), tf.constant(np.float32(1))), 1)

    graph = Graph(build)
    path = graph.save(tmp_path / "frozen.pb")
    x = np.random.default_rng(number).standard_normal((4, 3)).astype(np.float32)
    try:
        run = written(path, tmp_path / "m.onnx")
    except RefusedError as error:
        assert "--fix given=false" in str(error)
        run = written(path, tmp_path / "m.onnx", fix={"given": answer})
    np.testing.assert_allclose(run({"x": x}), graph.run({"x": x, "given": answer}), rtol=1e-5)


@pytest.mark.parametrize("default", [False, None])
def test_a_truth_is_fixed_for_all_that_reads_it(default: bool | None, tmp_path: Path) -> None:
    """Conditions read it, and so do products: that as a number, and Select."""

    def build(tf: Any) -> Tensor:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 3], "x")
        truth = v1.placeholder(tf.bool, [], "training") if default is None else v1.placeholder_with_default(default, [], "training")
        no, yes = tf.raw_ops.Switch(data=x, pred=truth)
        merged = tf.raw_ops.Merge(inputs=[no + tf.constant(1.0), yes * tf.constant(3.0)]).output
        return tf.where(truth, merged + tf.constant(5.0), merged) + tf.cast(truth, tf.float32) * tf.constant(10.0)

    graph = Graph(build)
    path, x = graph.save(tmp_path / "frozen.pb"), np.ones((2, 3), np.float32)
    for truth in (False, True):
        run = written(path, tmp_path / "m.onnx", fix={"training": truth}, verify=True)
        np.testing.assert_allclose(run({"x": x}), graph.run({"x": x, "training": truth}))
    if default is not None:
        np.testing.assert_allclose(written(path, tmp_path / "m.onnx")({"x": x}), graph.run({"x": x}))


@pytest.mark.parametrize("truth", [False, True])
def test_the_place_of_the_value_that_a_merge_hands_on_is_known_where_its_condition_is(truth: bool, tmp_path: Path) -> None:
    def build(tf: Any) -> Tensor:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")
        no, yes = tf.raw_ops.Switch(data=x, pred=tf.constant(truth))
        merged = tf.raw_ops.Merge(inputs=[no + tf.constant(1.0), yes * tf.constant(3.0)])
        return merged.output + tf.cast(merged.value_index, tf.float32) * tf.constant(10.0)

    graph = Graph(build)
    run = written(graph.save(tmp_path / "graph.pb"), tmp_path / "model.onnx")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(run({"x": x}), graph.run({"x": x}))


def dropped(tf: Any, x: Tensor, keep: Tensor, old: bool) -> Tensor:
    """Dropout as TensorFlow 1 writes it: today's function, and the one of before 1.13 (python/ops/nn_ops.py)."""
    if old:
        return tf.divide(x, keep) * tf.floor(keep + tf.compat.v1.random_uniform(tf.shape(x)))
    return tf.compat.v1.nn.dropout(x, keep_prob=keep)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("default", [1.0, 0.5, None])
def test_dropout_that_drops_nothing_is_not_written(default: float | None, old: bool, tmp_path: Path) -> None:
    """In a loop's steps and behind it. Where the probability is open, or drops something, the refusal names the value."""
    control_flow: Any = importlib.import_module(f"{needed('tensorflow', 'tensorflow').__name__}.python.ops.control_flow_util")
    functions = control_flow.ENABLE_CONTROL_FLOW_V2

    def build(tf: Any) -> Tensor:
        v1, rng = tf.compat.v1, np.random.default_rng(0)
        x = v1.placeholder(tf.float32, [6, None, 3], "x")
        keep = v1.placeholder(tf.float32, [], "keep") if default is None else v1.placeholder_with_default(default, [], "keep")
        matrix = tf.constant(rng.standard_normal((7, 4)).astype(np.float32))
        gives = tf.TensorArray(tf.float32, 6)

        def step(number: Tensor, state: Tensor, gives: Any) -> tuple[Tensor, Tensor, Any]:
            state = tf.tanh(tf.matmul(tf.concat([dropped(tf, x[number], keep, old), state], 1), matrix))
            return number + 1, state, gives.write(number, dropped(tf, state, keep, old))

        _, _, gives = tf.while_loop(lambda number, *_: number < 6, step, (0, tf.zeros([tf.shape(x)[1], 4]), gives))
        return dropped(tf, gives.stack(), keep, old)

    control_flow.ENABLE_CONTROL_FLOW_V2 = False  # loops of TensorFlow 1
    try:
        graph = Graph(build)
    finally:
        control_flow.ENABLE_CONTROL_FLOW_V2 = functions
    path, x = graph.save(tmp_path / "frozen.pb"), np.random.default_rng(1).standard_normal((6, 5, 3)).astype(np.float32)
    if default == 1:
        np.testing.assert_allclose(written(path, tmp_path / "m.onnx")({"x": x}), graph.run({"x": x}), rtol=1e-5, atol=1e-6)
    else:
        with pytest.raises(RefusedError, match=r"RandomUniform.*draws other numbers.* --fix keep=1\.0,"):
            written(path, tmp_path / "m.onnx")
    run = written(path, tmp_path / "m.onnx", fix={"keep": 1.0}, verify=True)
    np.testing.assert_allclose(run({"x": x}), graph.run({"x": x, "keep": 1.0}), rtol=1e-5, atol=1e-6)
    with pytest.raises(RefusedError, match="RandomUniform"):
        written(path, tmp_path / "m.onnx", fix={"keep": 0.9})


@pytest.mark.parametrize("what", ["more", "twice", "compared otherwise", "rounded", "a row"])
def test_what_only_looks_like_dropout_stays(what: str, tmp_path: Path) -> None:
    """Numbers up to 2, a mask that is added, one of what is not kept, a rate that is 0 in double precision alone, and one with an axis."""

    def build(tf: Any) -> Tensor:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        drawn_numbers = tf.compat.v1.random_uniform(tf.shape(x), maxval=2.0 if what == "more" else 1.0)
        rate = tf.constant(0.0)
        if what == "rounded":
            rate = 1.0 - 1.0 / tf.constant(41.0) * 41.0
        elif what == "a row":
            rate = tf.constant([[0.0]])
        mask = tf.cast(drawn_numbers < 1.0 if what == "compared otherwise" else drawn_numbers >= rate, tf.float32)
        return x + mask if what == "twice" else x * (tf.floor(1.0 + drawn_numbers) if what == "more" else mask)

    with pytest.raises(RefusedError, match="RandomUniform"):
        written(Graph(build).save(tmp_path / "frozen.pb"), tmp_path / "m.onnx")


def test_a_probability_that_a_condition_decides(tmp_path: Path) -> None:
    """Its constants wait for their branch, which waits for the condition: so does what the source is handed."""
    control_flow: Any = importlib.import_module(f"{needed('tensorflow', 'tensorflow').__name__}.python.ops.control_flow_util")
    functions = control_flow.ENABLE_CONTROL_FLOW_V2

    def build(tf: Any) -> Tensor:
        x, training = tf.compat.v1.placeholder(tf.float32, [None, 3], "x"), tf.compat.v1.placeholder(tf.bool, [], "training")
        return tf.tanh(dropped(tf, x, tf.cond(training, lambda: 0.5, lambda: 1.0), False))

    control_flow.ENABLE_CONTROL_FLOW_V2 = False  # conditions of TensorFlow 1
    try:
        graph = Graph(build)
    finally:
        control_flow.ENABLE_CONTROL_FLOW_V2 = functions
    path, x = graph.save(tmp_path / "frozen.pb"), np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32)
    with pytest.raises(RefusedError, match="--fix training="):
        written(path, tmp_path / "m.onnx")
    run = written(path, tmp_path / "m.onnx", fix={"training": False}, verify=True)
    np.testing.assert_allclose(run({"x": x}), graph.run({"x": x, "training": False}), rtol=1e-6)
    with pytest.raises(RefusedError, match="RandomUniform"):
        written(path, tmp_path / "m.onnx", fix={"training": True})


def test_a_probability_is_read_once_however_often_it_is_added(tmp_path: Path) -> None:
    """Each number is the one before it twice: 2 ** 60 ways lead to the first."""

    def build(tf: Any) -> Tensor:
        x, rate = tf.compat.v1.placeholder(tf.float32, [None, 3], "x"), tf.constant(0.0)
        for _ in range(60):
            rate = rate + rate
        return tf.tanh(x * tf.cast(tf.compat.v1.random_uniform(tf.shape(x)) >= rate, tf.float32))

    graph, x = Graph(build), np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32)
    run = written(graph.save(tmp_path / "frozen.pb"), tmp_path / "m.onnx")
    np.testing.assert_allclose(run({"x": x}), graph.run({"x": x}), rtol=1e-6)


def test_a_number_without_stated_axes_is_fixed(tmp_path: Path) -> None:
    """A length that a caller hands in, as ML-Agents has it: the refusal names what fixes it, and it runs so."""

    def build(tf: Any) -> Tensor:
        x, steps = tf.compat.v1.placeholder(tf.float32, [None, 3], "x"), tf.compat.v1.placeholder(tf.int32, None, "steps")
        return tf.reduce_sum(tf.reshape(x, [-1, steps, 3]), 1)

    graph = Graph(build)
    path, x = graph.save(tmp_path / "frozen.pb"), np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32)
    with pytest.raises(RefusedError, match="--fix steps="):
        written(path, tmp_path / "m.onnx")
    run = written(path, tmp_path / "m.onnx", fix={"steps": 2})
    np.testing.assert_allclose(run({"x": x}), graph.run({"x": x, "steps": 2}), rtol=1e-6)


def test_a_merge_of_which_two_values_are_left_is_refused(tmp_path: Path) -> None:
    """It hands on the first of them that there is: which, a run decides."""

    def build(tf: Any) -> Tensor:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        no, yes = tf.raw_ops.Switch(data=x, pred=tf.constant(True))
        return tf.raw_ops.Merge(inputs=[no, yes, x + tf.constant(1.0)]).output

    with pytest.raises(RefusedError, match="Merge"):
        written(Graph(build).save(tmp_path / "frozen.pb"), tmp_path / "m.onnx")


def test_a_truth_that_is_joined_with_itself_many_times_is_decided_at_once(tmp_path: Path) -> None:
    """Two paths lead from each of these to the next: 2^80 to the input."""

    def build(tf: Any) -> Tensor:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        truth = tf.compat.v1.placeholder_with_default(False, [], "training")
        for _ in range(80):
            truth = tf.logical_and(truth, truth)
        no, yes = tf.raw_ops.Switch(data=x, pred=truth)
        return tf.raw_ops.Merge(inputs=[no + tf.constant(1.0), yes * tf.constant(3.0)]).output

    path, x = Graph(build).save(tmp_path / "frozen.pb"), np.ones((2, 3), np.float32)
    np.testing.assert_allclose(written(path, tmp_path / "m.onnx")({"x": x}), x + 1)


def looped(tf: Any, x: Tensor, units: int, rng: np.random.Generator) -> Tensor:
    """The steps of an RNN over (time, batch, values), as dynamic_rnn writes them: up to the longest of one or the lengths there are."""
    matrix = tf.constant(rng.uniform(-1, 1, (int(x.shape[2]) + units, units)).astype(np.float32))
    time = tf.shape(x)[0]
    steps = tf.minimum(time, tf.maximum(1, time))
    gives = tf.TensorArray(tf.float32, time)

    def step(number: Tensor, state: Tensor, gives: Any) -> tuple[Tensor, Tensor, Any]:
        state = tf.tanh(tf.matmul(tf.concat([x[number], state], 1), matrix))
        return number + 1, state, gives.write(number, state)

    first = tf.zeros([tf.shape(x)[1], units])
    _, _, gives = tf.while_loop(lambda number, *_: number < steps, step, (0, first, gives))
    return gives.stack()


@pytest.mark.parametrize("time", [6, None])
@pytest.mark.parametrize("end", ["all", "last of a list", "by places"])
def test_loops_of_stated_and_open_lengths(time: int | None, end: str, tmp_path: Path) -> None:
    """Maximum and Minimum of lengths give lengths; unread parts of a sequence that Unpack takes apart do not become outputs."""
    if time is None and end == "last of a list":
        return  # of an open axis TensorFlow makes no list

    def build(tf: Any) -> Tensor:
        x = tf.compat.v1.placeholder(tf.float32, [time, None, 3], "x")
        places = tf.compat.v1.placeholder(tf.int32, [None, 2], "places")
        y = looped(tf, x, 4, np.random.default_rng(0))
        if end == "all":
            return y
        return tf.unstack(y, time)[-1] if end == "last of a list" else tf.gather_nd(y, places)

    graph = Graph(build)
    rng = np.random.default_rng(1)
    feeds = {"x": rng.standard_normal((6, 5, 3)).astype(np.float32)}
    if end == "by places":
        feeds["places"] = np.stack([rng.integers(0, 6, 7), rng.integers(0, 5, 7)], 1).astype(np.int32)
    run = written(graph.save(tmp_path / "frozen.pb"), tmp_path / "m.onnx")
    np.testing.assert_allclose(run(feeds), graph.run({"places": np.zeros((1, 2), np.int32), **feeds}), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("longest", [1, 4, 6])
def test_steps_behind_the_longest_sequence_of_a_block_give_zeros(longest: int, tmp_path: Path) -> None:
    """LSTMBlockFusedCell, as DeepSpeech has it, beside a branch that makes features of a sound."""
    rng = np.random.default_rng(0)

    def build(tf: Any) -> Tensor:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [6, 2, 3], "x")
        lengths = v1.placeholder(tf.int32, [2], "lengths")
        c, h = (v1.placeholder(tf.float32, [2, 4], name) for name in ("c", "h"))
        w, b = (tf.constant(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((7, 16), (16,)))
        peephole = tf.zeros([4])
        limit = tf.cast(tf.reduce_max(lengths), tf.int64)
        done = tf.raw_ops.BlockLSTM(
            seq_len_max=limit, x=x, cs_prev=c, h_prev=h, w=w, wci=peephole, wcf=peephole, wco=peephole, b=b, forget_bias=0.0, cell_clip=-1.0
        )
        sound = v1.placeholder(tf.float32, [512], "sound")
        spectrogram = tf.raw_ops.AudioSpectrogram(input=sound[:, None], window_size=512, stride=320, magnitude_squared=True)
        tf.reshape(tf.raw_ops.Mfcc(spectrogram=spectrogram, sample_rate=16000), [-1, 13], name="features")
        return done.h

    graph = Graph(build)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("x", (6, 2, 3)), ("c", (2, 4)), ("h", (2, 4)))}
    feeds["lengths"] = np.array([longest, 1], np.int32)
    run = written(graph.save(tmp_path / "frozen.pb", "features"), tmp_path / "m.onnx")
    np.testing.assert_allclose(run(feeds), graph.run(feeds), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("longest", [2, 6, "all but 2", "2 at most"])
@pytest.mark.parametrize("steps", [6, None])
def test_a_constant_or_a_sum_stops_a_block_as_lengths_do(steps: int | None, longest: int | str, tmp_path: Path) -> None:
    """The longest of constant lengths, folded: behind it are zeros, not the end of the sequence; what it leaves all of is not masked."""
    rng = np.random.default_rng(1)

    def build(tf: Any) -> Tensor:
        x = tf.compat.v1.placeholder(tf.float32, [steps, 2, 3], "x")
        w, b = (tf.constant(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((7, 16), (16,)))
        state, peephole, time = tf.zeros([2, 4]), tf.zeros([4]), tf.shape(x, tf.int64)[0]
        computed = {"all but 2": lambda: time - 2, "2 at most": lambda: tf.minimum(time, 2)}
        limit = computed[longest]() if isinstance(longest, str) else tf.constant(longest, tf.int64)
        return tf.raw_ops.BlockLSTM(
            seq_len_max=limit, x=x, cs_prev=state, h_prev=state, w=w, wci=peephole, wcf=peephole, wco=peephole, b=b, cell_clip=-1.0
        ).h

    graph = Graph(build)
    feeds = {"x": rng.standard_normal((6, 2, 3)).astype(np.float32)}
    run = written(graph.save(tmp_path / "frozen.pb"), tmp_path / "m.onnx")
    np.testing.assert_allclose(run(feeds), graph.run(feeds), rtol=1e-5, atol=1e-6)
    kinds = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    assert "LSTM" in kinds and ("Where" not in kinds) == (steps == longest)

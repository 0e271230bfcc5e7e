"""Burn and candle: the weights and outputs that their own tests state, in files as their sources describe them.

Burn's numbers: crates/burn-nn/src/modules/rnn, lstm.rs test_bidirectional and test_forward_single_input_single_feature, gru.rs
test_bigru_against_pytorch and tests_forward_seq_len_3. candle's: candle-nn/tests/rnn.rs.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import safetensors
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UnreadableError
from tests.helpers.damage import endings

X = np.array([[[0.949, -0.861]], [[0.892, 0.927]], [[-0.173, -0.301]], [[-0.081, 0.992]]])
H0 = [[[0.280, 0.360, -1.242]], [[-0.588, 0.729, -0.788]]]
C0 = [[[0.723, 0.397, -0.262]], [[0.471, 0.613, 1.885]]]
# fmt: off
# Each gate: the weight of its input (2, 3) and its bias, then the weight of the state (3, 3) and its bias.
BILSTM = {
    "forward.input_gate": ([[0.367, 0.091, 0.342], [0.322, 0.533, 0.059]], [-0.196, 0.354, 0.209],
                           [[-0.320, 0.232, -0.165], [0.093, -0.572, -0.315], [-0.467, 0.325, 0.046]], [0.181, -0.190, -0.245]),
    "forward.forget_gate": ([[-0.342, -0.084, -0.420], [-0.432, 0.119, 0.191]], [0.315, -0.413, -0.041],
                            [[0.453, 0.063, 0.561], [0.211, 0.149, 0.213], [-0.499, -0.158, 0.068]], [-0.431, -0.535, 0.125]),
    "forward.cell_gate": ([[-0.046, -0.382, 0.321], [-0.533, 0.558, 0.004]], [-0.358, 0.282, -0.078],
                          [[-0.358, 0.109, 0.139], [-0.345, 0.091, -0.368], [-0.508, 0.221, -0.507]], [0.502, -0.509, -0.247]),
    "forward.output_gate": ([[-0.577, -0.359, 0.216], [-0.550, 0.268, 0.243]], [-0.227, -0.274, 0.039],
                            [[-0.383, 0.449, 0.222], [-0.357, -0.093, 0.449], [-0.106, 0.236, 0.360]], [-0.361, -0.209, -0.454]),
    "reverse.input_gate": ([[-0.055, 0.506, 0.247], [-0.369, 0.178, -0.258]], [0.540, -0.164, 0.033],
                           [[0.159, 0.180, -0.037], [-0.443, 0.485, -0.488], [0.098, -0.085, -0.140]], [-0.510, 0.105, 0.114]),
    "reverse.forget_gate": ([[-0.154, -0.432, -0.547], [-0.369, -0.310, -0.175]], [0.141, 0.004, 0.055],
                            [[-0.005, -0.277, -0.515], [-0.011, -0.101, -0.365], [0.426, 0.379, 0.337]], [-0.382, 0.331, -0.176]),
    "reverse.cell_gate": ([[-0.571, 0.228, -0.287], [-0.331, 0.110, 0.219]], [-0.206, -0.546, 0.462],
                          [[0.449, -0.240, 0.071], [-0.045, 0.131, 0.124], [0.138, -0.201, 0.191]], [-0.030, 0.211, -0.352]),
    "reverse.output_gate": ([[0.491, -0.442, 0.333], [0.313, -0.121, -0.070]], [-0.387, -0.250, 0.066],
                            [[-0.030, 0.268, 0.299], [-0.019, -0.280, -0.314], [0.466, -0.365, -0.248]], [-0.398, -0.199, -0.566]),
}
BILSTM_Y = [[0.23764, -0.03442, 0.04414, -0.15635, -0.03366, -0.05798], [0.00473, -0.02254, 0.02988, -0.16510, -0.00306, 0.08742],
            [0.06210, -0.06509, -0.05339, -0.01710, 0.02091, 0.16012], [-0.03420, 0.07774, -0.09774, -0.02604, 0.12584, 0.20872]]
BILSTM_C = [[-0.13593, 0.17125, -0.22395], [-0.45425, -0.11206, -0.12908]]
BIGRU = {
    "forward.update_gate": ([[-0.2811, 0.5090, 0.5018], [0.3391, -0.4236, 0.1081]], [0.2932, -0.3519, -0.5715],
                            [[-0.3471, 0.5214, 0.0961], [0.0545, -0.4904, -0.1875], [-0.5702, 0.4457, 0.3568]],
                            [-0.0100, 0.4518, -0.4102]),
    "forward.reset_gate": ([[0.4414, -0.1353, -0.1265], [0.4792, 0.5304, 0.1165]], [-0.2524, 0.3333, 0.1033],
                           [[-0.2695, -0.0677, -0.4557], [0.1472, -0.2345, -0.2662], [-0.2660, 0.3830, -0.1630]],
                           [0.1663, 0.2391, 0.1826]),
    "forward.new_gate": ([[0.4266, 0.2784, 0.4451], [0.0782, -0.0815, 0.0853]], [-0.2231, -0.4428, 0.4737],
                         [[0.0900, -0.1821, 0.2430], [0.4665, 0.1551, 0.5155], [0.0631, -0.1566, 0.3337]], [0.0364, -0.3941, 0.1780]),
    "reverse.update_gate": ([[-0.3444, 0.1924, -0.4765], [0.5193, 0.5556, -0.5727]], [0.1090, 0.1779, -0.5385],
                            [[0.1221, 0.3925, 0.5287], [-0.1472, -0.4187, -0.1948], [0.3441, -0.3082, -0.2047]],
                            [0.0016, -0.2148, -0.0400]),
    "reverse.reset_gate": ([[-0.1988, -0.1203, -0.3422], [0.1769, 0.4788, -0.3443]], [-0.5053, -0.3676, 0.5771],
                           [[-0.3936, 0.3504, -0.4486], [0.3063, -0.1370, -0.2914], [-0.2334, 0.3303, 0.1760]],
                           [-0.5080, -0.2488, -0.3456]),
    "reverse.new_gate": ([[-0.4517, 0.2339, 0.4797], [-0.3884, 0.2067, -0.2982]], [-0.3792, -0.1922, 0.0903],
                         [[-0.5586, -0.0762, -0.3944], [-0.3306, -0.4191, -0.4898], [0.1442, 0.0135, -0.3179]],
                         [-0.3912, -0.3963, -0.3368]),
}
BIGRU_Y = [[0.24537, 0.14018, 0.19449, -0.49777, -0.15647, 0.48392], [0.27468, -0.14514, 0.56205, -0.60381, -0.04986, 0.15683],
           [-0.04062, -0.33486, 0.52330, -0.42244, -0.12644, -0.12034], [-0.11743, -0.53873, 0.54429, -0.64943, 0.30127, -0.41943]]
# fmt: on


def arrays_of(gates: Mapping[str, Any], above: str = "", dtype: Any = np.float32) -> dict[str, Array]:
    names = ("input_transform.weight", "input_transform.bias", "hidden_transform.weight", "hidden_transform.bias")
    return {
        f"{above}{gate}.{name}": np.array(values, dtype)
        for gate, four in gates.items()
        for name, values in zip(names, four, strict=True)
        if values is not None
    }


def tree(arrays: Mapping[str, Array], raw: Any) -> dict[str, Any]:
    """The modules of a record: a parameter is its id and its tensor, a setting is null."""
    root: dict[str, Any] = {}
    for number, (name, array) in enumerate(arrays.items()):
        *modules, last = name.split(".")
        inside = root
        for module in modules:
            inside = inside.setdefault(module, {})
        kind = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64"}[str(array.dtype)]
        tensor = {"bytes": raw(array.tobytes()), "shape": [*array.shape], "dtype": kind}
        inside[last] = {"id": f"{number:013d}", "param": tensor}
    return {**root, "d_hidden": None, "reset_after": None}


def record(arrays: Mapping[str, Array], raw: Any, version: str = "0.18.0") -> dict[str, Any]:
    metadata = {"float": "f32", "int": "i32", "format": "burn_core::record::file::Recorder", "version": version, "settings": "Full"}
    return {"metadata": metadata, "item": tree(arrays, raw), "_b": None}


def mpk(path: Path, arrays: Mapping[str, Array], version: str = "0.18.0") -> Path:
    path.write_bytes(msgpack.packb(record(arrays, bytes, version), use_bin_type=True))
    return path


def pretty(path: Path, arrays: Mapping[str, Array], version: str = "0.18.0") -> Path:
    path.write_text(json.dumps(record(arrays, list, version), indent=2))
    return path


def cbor(value: Any) -> bytes:
    def head(kind: int, number: int) -> bytes:
        if number < 24:
            return bytes([kind << 5 | number])
        for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
            if number < 1 << 8 * size:
                return bytes([kind << 5 | code]) + number.to_bytes(size, "big")
        raise ValueError(number)

    if isinstance(value, dict):
        return head(5, len(value)) + b"".join(cbor(key) + cbor(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(3, len(value.encode())) + value.encode() if isinstance(value, str) else head(0, value)


def burnpack(path: Path, arrays: Mapping[str, Array], aligned: int = 256) -> Path:
    described, data = {}, b""
    for name, array in sorted(arrays.items()):
        data += bytes(-len(data) % aligned)
        place = (len(data), len(data) + array.nbytes)
        described[name] = {"dtype": "F32", "shape": [*array.shape], "data_offsets": place, "param_id": 7}
        data += array.tobytes()
    content = cbor({"tensors": described, "metadata": {"producer": "burn", "version": "0.20.0"}})
    head = struct.pack("<4sHI", b"NRUB", 1, len(content)) + content
    path.write_bytes(head + bytes(-len(head) % aligned) + data)
    return path


def archive(path: Path, arrays: Mapping[str, Array]) -> Path:
    safetensors.write(path, arrays)
    return path


MAKERS: dict[str, Callable[..., Path]] = {
    "m.mpk": mpk, "m.json": pretty, "m.bpk": burnpack, "old.bpk": lambda path, arrays: burnpack(path, arrays, 1), "m.safetensors": archive,
}  # fmt: skip


def ran(layer: rc.Recurrent, x: Array, cells: bool = True) -> Any:
    hidden, cell = ([np.array(state) for state in states] for states in (H0, C0))
    return reference.run(layer, x, hidden, cell if cells else None)


@pytest.mark.parametrize("name", MAKERS)
def test_burns_bilstm_gives_what_burns_test_states(name: str, tmp_path: Path) -> None:
    checkpoint = rc.load(MAKERS[name](tmp_path / name, arrays_of(BILSTM, "encoder.")))
    assert checkpoint.format == "burn" and not checkpoint.unread and not checkpoint.warnings
    layer = checkpoint.layers["encoder"]
    answer = ran(layer, X)
    np.testing.assert_allclose(answer.y[:, 0], BILSTM_Y, rtol=0, atol=1e-5)
    np.testing.assert_allclose([state[0] for state in answer.cell], BILSTM_C, rtol=0, atol=1e-5)
    assert {question.option for question in checkpoint.questions} == {
        "activation", "recurrent_activation", "output_activation", "cell_clip", "input_forget",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["m.mpk", "m.bpk"])
def test_burns_bigru_gives_what_burns_test_states(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / name, arrays_of(BIGRU))
    checkpoint = rc.load(path)
    # Burn's test states its weights to four digits.
    np.testing.assert_allclose(ran(checkpoint.layers[""], X, cells=False).y[:, 0], BIGRU_Y, rtol=0, atol=1e-4)
    assert "reset_after" in {question.option for question in checkpoint.questions}
    before = rc.load(path, settings=["reset_after=false"]).layers[""]
    assert before.cell.reset_after is False
    assert np.abs(ran(before, X, cells=False).y[:, 0] - BIGRU_Y).max() > 1e-3


def test_burns_small_cells(tmp_path: Path) -> None:
    gates = {"input_gate": 0.5, "forget_gate": 0.7, "cell_gate": 0.9, "output_gate": 1.1}
    path = mpk(tmp_path / "m.mpk", arrays_of({gate: ([[weight]], [0], [[weight]], [0]) for gate, weight in gates.items()}))
    answer = reference.run(rc.load(path).layers[""], np.full((1, 1, 1), 0.1))
    assert abs(answer.cell[0].item() - 0.046) < 5e-4 and abs(answer.y.item() - 0.0242) < 5e-4
    gates = {"update_gate": 0.5, "reset_gate": 0.6, "new_gate": 0.7}
    path = mpk(tmp_path / "g.mpk", arrays_of({gate: ([[weight]], [0], [[weight]], [0]) for gate, weight in gates.items()}))
    y = reference.run(rc.load(path).layers[""], np.array([[[0.1]], [[0.2]], [[0.3]]])).y
    np.testing.assert_allclose(y.reshape(-1), [0.0341, 0.0894, 0.1575], rtol=0, atol=5e-4)


def test_settings_that_files_do_not_hold_are_the_callers(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.safetensors", arrays_of({gate[8:]: values for gate, values in BILSTM.items() if "forward" in gate}))
    settings = ["activation=relu", "recurrent_activation=sigmoid", "output_activation=tanh", "cell_clip=0.5", "input_forget=f",
                "go_backwards=true"]  # fmt: skip
    layer = rc.load(path, "burn", settings=settings).layers[""]
    assert layer.cell.activation.name == "relu" and layer.cell.clips[0].high == 0.5 and layer.cell.coupled == "f" and layer.first.reverse


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    mpk(tmp_path / "m.mpk", arrays_of(BIGRU, "encoder."))
    assert rc.convert(tmp_path / "m.mpk", tmp_path / "m.safetensors", target_format="burn").exact
    written = safetensors.read(tmp_path / "m.safetensors").arrays
    assert {name: array.tolist() for name, array in written.items()} == {
        name: array.tolist() for name, array in arrays_of(BIGRU, "encoder.").items()
    }
    assert rc.convert(tmp_path / "m.mpk", tmp_path / "m.pt").exact


def test_a_gru_that_did_not_carry_its_state_is_refused(tmp_path: Path) -> None:
    path = mpk(tmp_path / "m.mpk", arrays_of(BIGRU), "0.16.1")
    with pytest.raises(RefusedError, match="without recurrence"):
        rc.convert(path, tmp_path / "m.pt")
    rc.convert(mpk(tmp_path / "l.mpk", arrays_of(BILSTM), "0.16.1"), tmp_path / "l.pt")


def test_half_precision_and_gzip(tmp_path: Path) -> None:
    path = mpk(tmp_path / "m.mpk", arrays_of(BILSTM, dtype=np.float16))
    (tmp_path / "m.mpk.gz").write_bytes(gzip.compress(path.read_bytes()))
    (layer,) = rc.load(tmp_path / "m.mpk.gz").layers.values()
    assert layer.dtype == np.float16
    np.testing.assert_allclose(ran(layer, X).y[:, 0], BILSTM_Y, rtol=0, atol=2e-3)


def test_lists_of_modules_are_counted(tmp_path: Path) -> None:
    document = record(arrays_of(BILSTM), bytes)
    document["item"] = {"layers": [document["item"], document["item"]], "head": None}
    (tmp_path / "m.mpk").write_bytes(msgpack.packb(document))
    assert [*rc.load(tmp_path / "m.mpk").layers] == ["layers.0", "layers.1"]


@pytest.mark.parametrize(
    ("change", "why"),
    [(lambda tensor: tensor.update(dtype={"QFloat": {}}), "QFloat"), (lambda tensor: tensor.update(shape=[2, 4]), "bytes"),
     (lambda tensor: tensor.update(bytes=b"12"), "bytes"), (lambda tensor: tensor.update(shape="x"), "shape"),
     (lambda tensor: (tensor.clear(), tensor.update(value=[1.0], shape=[1])), "before 0.14")],
)  # fmt: skip
def test_a_damaged_tensor_is_unreadable(change: Any, why: str, tmp_path: Path) -> None:
    document = record(arrays_of(BIGRU), bytes)
    change(document["item"]["forward"]["update_gate"]["input_transform"]["weight"]["param"])
    (tmp_path / "m.mpk").write_bytes(msgpack.packb(document))
    with pytest.raises(UnreadableError, match=why):
        rc.load(tmp_path / "m.mpk")


@pytest.mark.parametrize("name", ["m.mpk", "m.json", "m.bpk"])
def test_a_damaged_file_ends_in_an_error_of_ours(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / name, arrays_of(BIGRU))
    ends = endings(path, "burn", 120)
    assert "unreadable" in ends


def test_candles_lstm_gives_what_candles_test_states(tmp_path: Path) -> None:
    bias = np.array([-1, 1, -0.5, 2] * 3, np.float32)
    arrays = {
        "weight_ih_l0": np.cos(np.arange(24, dtype=np.float32)).reshape(12, 2), "bias_ih_l0": bias, "bias_hh_l0": np.cos(bias),
        "weight_hh_l0": np.sin(np.arange(36, dtype=np.float32)).reshape(12, 3),
    }  # fmt: skip
    safetensors.write(tmp_path / "m.safetensors", arrays)
    (layer,) = rc.load(tmp_path / "m.safetensors", "pytorch").layers.values()
    answer = reference.run(layer, np.array([[[value, value * 0.5]] for value in (3.0, 1, 4, 1, 5, 9, 2)]))
    np.testing.assert_allclose(answer.hidden[0][0], [0.9919, 0.1738, -0.1451], rtol=0, atol=6e-5)
    np.testing.assert_allclose(answer.cell[0][0], [5.725, 0.4458, -0.2908], rtol=0, atol=6e-5)

"""Files of whole models that would run code, given to the commands that run models: none of it runs, in no process."""

from __future__ import annotations

import ast
import collections
import contextlib
import importlib.util
import io
import json
import pickle
import re
import sys
import types
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import ExecutorError, RnnConvertError
from rnnconvert.formats.keras.run_loading import refuse_code
from rnnconvert.formats.paddle import paddle_params
from rnnconvert.formats.paddle import run as paddle_run
from rnnconvert.models.runners import FileModel
from rnnconvert.running import parent
from rnnconvert.running.inputs import named
from rnnconvert.running.registry import built_in
from tests import ROOT
from tests.helpers import frameworks
from tests.helpers.commands import call
from tests.helpers.drawn import each
from tests.helpers.requirements import need, needed

pytestmark = pytest.mark.filterwarnings("ignore:::")
Parts = dict[str, bytes]


class Marks:
    """A pickle of it makes a file when it is executed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def program_parts(torch: Any, folder: Path) -> Parts:
    """Return the members of a good .pt2 with a layer, an open axis and an operator that receives a text."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.GRU(3, 4, batch_first=True)
            self.head = torch.nn.Linear(4, 2)
            self.register_buffer("scale", torch.ones(2))

        def forward(self, x: Any) -> Any:
            y = torch.nn.functional.gelu(self.head(self.rnn(x)[0]), approximate="tanh")
            return {"y": y * self.scale, "last": y[:, -1].reshape(-1)}

    path = folder / "good.pt2"
    batch = torch.export.Dim.DYNAMIC
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(2, 7, 3),), dynamic_shapes={"x": {0: batch}}), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def member(parts: Parts, ending: str) -> str:
    (name,) = [name for name in parts if name.endswith(ending)]
    return name


def edited(parts: Parts, change: Callable[[Any], None], ending: str = "models/model.json") -> Parts:
    """Return the members with the JSON of one changed."""
    name = member(parts, ending)
    value = json.loads(parts[name])
    change(value)
    return {**parts, name: json.dumps(value).encode()}


def pickled(torch: Any, mark: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(((torch.zeros(2, 7, 3),), {"m": Marks(mark)}), buffer)
    return buffer.getvalue()


def attacks_on_programs(torch: Any, parts: Parts, mark: Path) -> Mapping[str, Parts]:
    """Return members of archives each of which makes a file when torch.export.load or the module that it gives executes it."""
    code = f'__import__("pathlib").Path({str(mark)!r}).touch()'
    evil = pickled(torch, mark)
    root = member(parts, "archive_version").partition("/")[0]

    def graph(change: Callable[[Any], None]) -> Parts:
        return edited(parts, lambda program: change(program["graph_module"]))

    def texts(change: Callable[[dict[str, Any]], bool]) -> Parts:
        """Change the first dictionary in the graph that a function changes."""

        def walk(value: Any) -> bool:
            if isinstance(value, dict) and change(value):
                return True
            return any(map(walk, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()))

        changed: list[bool] = []
        result = graph(lambda module: changed.append(walk(module)))
        assert changed == [True]
        return result

    def expression(value: dict[str, Any]) -> bool:
        return "expr_str" in value and not value.update(expr_str=code)

    def shape(value: dict[str, Any]) -> bool:
        return "tensor_values" in value and not next(iter(value["tensor_values"].values()))["sizes"].__setitem__(
            0, {"as_expr": {"expr_str": code, "hint": {"as_int": 2}}}
        )

    def text(value: dict[str, Any]) -> bool:
        return "as_string" in value and not value.update(as_string=f"tanh', {code}) #")

    def call(target: str, *words: str) -> Parts:
        arguments = [{"name": "", "arg": {"as_string": word}, "kind": 1} for word in words]
        node = {"target": target, "inputs": arguments, "outputs": [{"as_none": True}], "metadata": {}, "name": "hit"}
        return graph(lambda module: module["graph"]["nodes"].insert(0, node))

    def payload(ending: str, data: bytes = evil, **changes: Any) -> Parts:
        def change(config: Any) -> None:
            entries = config["config"]
            entry = dict(next(iter(entries.values()))) if entries else {"is_param": False, "use_pickle": False, "tensor_meta": None}
            entries["evil"] = {**entry, **changes}

        folder = member(parts, ending).rpartition("/")[0]
        return {**edited(parts, change, ending), f"{folder}/{changes['path_name']}": data}

    def spec(module: Any) -> None:
        called = module["module_call_graph"][0]["signature"]
        protocol, tree = json.loads(called["out_spec"])
        tree["type"], tree["context"] = "collections.defaultdict", {
            "default_factory_module": "antigravity_of_a_file", "default_factory_name": "f", "dict_context": ["y", "last"],
        }  # fmt: skip
        called["out_spec"] = json.dumps([protocol, tree])

    def parameter(module: Any) -> None:
        for entry in module["signature"]["input_specs"]:
            if "buffer" in entry:
                entry["buffer"]["buffer_name"] = f'a"), {code.replace(".", "")}, ("'

    old = {
        "version": b"8.14",
        "serialized_exported_program.json": parts[member(parts, "models/model.json")],
        "serialized_state_dict.pt": evil, "serialized_constants.pt": evil, "serialized_example_inputs.pt": evil,
    }  # fmt: skip
    return {
        "sample inputs": {**parts, member(parts, "sample_inputs/model.pt"): evil},
        "weights of an older torch": {**parts, f"{root}/data/weights/model.pt": evil},
        "constants of an older torch": {**parts, f"{root}/data/constants/model.pt": evil},
        "a pickled weight": payload("weights_config.json", path_name="weight_9", use_pickle=True),
        "a pickled constant": payload("constants_config.json", path_name="tensor_9", use_pickle=True),
        "an opaque object": payload("constants_config.json", path_name="opaque_obj_0", use_pickle=True, data=pickle.dumps(Marks(mark))),
        "an object of a class": payload("constants_config.json", path_name="custom_obj_0", use_pickle=True),
        "the layout before torch 2.8": old,
        "a symbolic length": texts(expression),
        "a shape": texts(shape),
        "a text": texts(text),
        "guards": edited(parts, lambda program: program.update(guards_code=[code])),
        "a range": edited(parts, lambda program: program["range_constraints"].update({code: {"min_val": 2, "max_val": 3}})),
        "a function of Python": call("torch.os.system", f"touch {mark}"),
        "an operator's function": call("_operator.methodcaller", "__class__"),
        "an operator on files": call("torch.ops.aten.from_file.default", str(mark)),
        "another loader": call("torch.hub.load", str(mark), "m"),
        "a structure": graph(spec),
        "a name": graph(parameter),
        "compiled code": {**parts, f"{root}/data/aotinductor/model/model.so": b"\x7fELF"},
    }


def written(path: Path, parts: Parts) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def test_no_program_of_torch_executes_anything(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    from rnnconvert.formats.pytorch.run_program import loaded

    parts, mark = program_parts(torch, tmp_path), tmp_path / "MARK"
    x = torch.randn(3, 7, 3)
    truth = torch.export.load(tmp_path / "good.pt2").module()(x)
    harmless = {"sample inputs", "guards", "compiled code"}
    refused: set[str] = set()

    def check(attack: tuple[str, Parts]) -> None:
        name, changed = attack
        file = written(tmp_path / "evil.pt2", changed)
        try:
            gave = loaded(str(file)).module()(x)
        except NotImplementedError as error:
            refused.add(name)
            assert str(error) and len(str(error)) < 400
        else:
            assert name in harmless, name
            assert all(torch.equal(gave[key], truth[key]) for key in truth)
        assert not mark.exists(), name

    attacks = attacks_on_programs(torch, parts, mark)
    each(attacks.items(), check, lambda attack: attack[0])
    assert refused == set(attacks) - harmless
    assert torch.equal(loaded(str(tmp_path / "good.pt2")).module()(x)["y"], truth["y"])


def test_commands_execute_no_pickle_of_a_program(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    parts, mark = program_parts(torch, tmp_path), tmp_path / "MARK"
    attacks = attacks_on_programs(torch, parts, mark)
    for name in ("sample inputs", "a pickled constant"):
        file = written(tmp_path / "evil.pt2", attacks[name])
        uses: list[Callable[..., Any]] = [
            lambda file=file: rc.scaffold(file, "pytorch", tmp_path / "a.py", verify=True, force=True),
            lambda file=file: rc.convert(file, tmp_path / "a.onnx", verify=True, force=True),
        ]
        for use in uses:
            try:
                use()
            except RnnConvertError as error:
                assert error.exit_code in (1, 2, 3, 4, 6), error
            assert not mark.exists(), name


def test_expressions_are_arithmetic_of_symbols_or_refused() -> None:
    from rnnconvert.formats.pytorch.run_program import checked

    def check(case: tuple[str, bool]) -> None:
        text, good = case
        program = json.dumps({"graph_module": {"graph": {"expr_str": text}}}).encode()
        if good:
            checked(program)
            return
        with pytest.raises(NotImplementedError, match="torch would execute it"):
            checked(program)

    good = [
        "Mul(Symbol('s27', positive=True, integer=True), Symbol('s77', positive=True, integer=True))", "2*s0 + 1", "s0**2", "s0//2",
        "Integer(7)", "Max(1, s0)", "FloorDiv(Add(Symbol('s0', integer=True), Integer(-1)), Integer(2))", "s0 < 5",
        "Pow(Symbol('s0'), Integer(2))", "Float('0.5', precision=53)",
    ]  # fmt: skip
    bad = [
        "9^9^9^9", "Float('1.5', 3000000000)", "Float('1.5', precision=3000000000)",
        "__import__('os')", "s0.__class__", "Symbol('s0').func", "open", "eval('1')", "[1]", "lambda: 1", "9**9**9", "Pow(9, Pow(9, 9))",
        "s0[0]", "Symbol('a b')", "f'{s0}'", "(s0 := 1)", "preview(s0)", "1 if s0 else 2", "Symbol(cls=open)", "Symbol(**{})",
        "Symbol('s0', a='b')", "'" * 9, "s0" + "+s0" * 2000, "LShift(1, 99999999)", "((((9**9)**9)**9)**9)**9", "1 << 99999", "9" * 500,
    ]  # fmt: skip
    each([*((text, True) for text in good), *((text, False) for text in bad)], check, str)


def test_files_of_torch_run_in_a_process_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needed("torch", "torch")
    from rnnconvert.formats.pytorch.whole_run import open_file

    torch.manual_seed(0)  # of some numbers a sum does not move
    net = torch.nn.Sequential(torch.nn.Linear(3, 2)).eval()
    x = np.ones((4, 3), np.float32)
    torch.jit.trace(net, torch.zeros(2, 3)).save(tmp_path / "a.pt")
    torch.export.save(torch.export.export(net, (torch.zeros(4, 3),)), tmp_path / "b.pt2")
    expected = net(torch.from_numpy(x)).detach().numpy()

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the caller's process loaded a model of a file")

    for module in (torch.jit, torch.export):
        monkeypatch.setattr(module, "load", never)
    for name in ("a.pt", "b.pt2"):
        live = open_file(tmp_path / name)
        ran, shaken = live.ran(named(x), [], shakes=2)
        (gave,) = ran.outputs
        assert np.allclose(gave, expected, atol=1e-6)
        assert len(shaken) == 2 and all(0 < np.abs(other.outputs[0] - gave).max() < 1e-6 for other in shaken)
        with pytest.raises(RnnConvertError, match=r"does not run on these inputs|is 3, got 2"):
            live.ran(named(x[:, :2]), [])


def of_code(mark: Path) -> Any:
    """Return a function of Python that makes a file when a layer calls it."""
    return eval(f"lambda x: (open({str(mark)!r}, 'w').close(), x)[1]")


def with_lambda(keras: Any, folder: Path, mark: Path) -> list[Path]:
    """Return files of a model whose Lambda makes a file when the model is loaded."""
    layers = keras.layers
    model = keras.Sequential([layers.Input((7, 3)), layers.LSTM(4, return_sequences=True, name="l"), layers.Lambda(of_code(mark))])
    files = [folder / f"evil.{ending}" for ending in ("keras", "h5")]
    for file in files:
        model.save(file)
        mark.unlink(missing_ok=True)
        keras.models.load_model(file, compile=False, safe_mode=False)(np.zeros((1, 7, 3), "f4"))
        assert mark.exists()
        mark.unlink()
    return files


def every_command(file: Path, folder: Path, inputs: Path) -> list[tuple[object, ...]]:
    """Return the commands that reach a loader with a file."""
    return [
        ("scaffold", file, "--to", "pytorch", "-o", folder / "out.py", "--verify", "--partial", "--force"),
        ("scaffold", file, "--to", "pytorch", "-o", folder / "out.py", "--verify", "--force"),
        ("export", file, folder / "out.onnx", "--verify", "--force"),
        ("transplant", file, "--into", file, "-o", folder / f"out{file.suffix or '.pb'}", "--verify", inputs, "--force"),
        ("verify", file, file),
        ("convert", file, folder / "out.onnx", "--verify", "--force"),
        ("upgrade", file, folder / "out.keras", "--verify", "--force"),
        ("fuse", file, folder / f"fused{file.suffix}", "--force"),
    ]


def run_all(file: Path, folder: Path, mark: Path) -> str:
    """Run every command on a file, which must execute nothing of it; return what they print."""
    np.save(folder / "x.npy", np.ones((2, 7, 3), "f4"))
    texts = []
    for words in every_command(file, folder, folder / "x.npy"):
        result = call(*words)
        assert result.exit_code in range(7), (words, result.output)
        assert not mark.exists(), words
        texts.append(result.output)
    return "\n".join(texts)


def refusals(file: Path, *runners: Any) -> list[str]:
    """Return how executors refuse a file that is run whole, and one of whose layers is."""
    texts = []
    for runner in runners:
        with parent.started(runner) as process:
            for more in ({"witness": {"layers": [], "seed": 0}}, {"x": np.ones((7, 1, 3), "f4"), "hidden": None, "cell": None}):
                with pytest.raises(ExecutorError) as error:
                    process.ask(file=str(file), layers=["l"], lengths=None, cotangents=None, how={}, **more)
                assert error.value.refused, error.value
                texts.append(error.value.problem)
    return texts


def test_no_code_of_a_lambda_is_executed(tmp_path: Path) -> None:
    keras, mark = needed("keras", "keras"), tmp_path / "MARK"
    runner = built_in()["keras-tensorflow"]
    need("keras", runner.absent)
    for file in with_lambda(keras, tmp_path, mark):
        assert "Lambda" in run_all(file, tmp_path, mark)
        assert all("brings" in text and "Keras would execute" in text for text in refusals(file, runner))
        with pytest.raises(rc.UsageError, match="brings"):
            FileModel(file, [runner.name])
        assert not mark.exists()


def test_tf_keras_executes_no_code_of_an_old_file(tmp_path: Path) -> None:
    runner, mark, file = frameworks.tf_keras(), tmp_path / "MARK", tmp_path / "old.h5"
    script = f"""
import sys, numpy as np, tf_keras as keras
L = keras.layers
act = eval("lambda x: (open({str(mark)!r}, 'w').close(), x)[1]")
keras.Sequential([keras.Input((7, 3)), L.LSTM(4, return_sequences=True, name="l"), L.Lambda(act)]).save(sys.argv[1])
"""
    frameworks.by_keras_2(script, file)
    mark.unlink()
    frameworks.by_keras_2("import sys, tf_keras; tf_keras.models.load_model(sys.argv[1], compile=False)", file)
    assert mark.exists()  # what tf_keras by itself does, in spite of its safe mode
    mark.unlink()
    assert "Lambda" in run_all(file, tmp_path, mark)
    assert all("tf_keras would execute" in text for text in refusals(file, runner))
    assert not mark.exists()


def test_functions_of_modules_are_not_called() -> None:
    def function(name: str, module: str, registered: str = "") -> dict[str, Any]:
        layer = {"class_name": "function", "config": name, "module": module, "registered_name": registered}
        return {"layers": [{"class_name": "Lambda", "config": {"function": layer}}]}

    for config in (
        function("system", "os", "system"), function("get_file", "keras.utils", "get_file"), function("eval", "builtins", "eval"),
        {"class_name": "TorchModuleWrapper", "config": {}}, {"class_name": "__lambda__", "config": {"value": ["4wEA"]}},
        {"class_name": "Lambda", "config": {"function_type": "function", "function": "Popen", "module": "subprocess"}},
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match=r"would (execute|call)"):
            refuse_code(config, "Keras")
    harmless: dict[str, Any] | None
    for harmless in (
        function("mine", "builtins", "function"), function("relu", "keras.activations"), {"class_name": "Mine", "module": "my.layers"},
        {"class_name": "Lambda", "config": {"function_type": "function", "function": "relu", "module": "keras.activations"}}, None,
    ):  # fmt: skip
        refuse_code(harmless, "Keras")


def test_a_saved_model_writes_and_reads_no_file(tmp_path: Path) -> None:
    keras, tf = needed("keras", "keras"), needed("tensorflow", "tensorflow")
    from tensorflow.python.trackable import resource

    mark, runner = tmp_path / "MARK", built_in()["keras-tensorflow"]
    model = keras.Sequential([keras.layers.Input((7, 3)), keras.layers.LSTM(4, return_sequences=True, name="l")])
    x = np.ones((2, 7, 3), np.float32)

    def writes(x: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file(str(mark), "x")]):
            return tf.identity(x)

    class Resource(resource.CapturableResource):
        def _create_resource(self) -> Any:
            return tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)

        def _initialize(self) -> Any:
            writes(tf.constant(0))

    def saves(x: Any) -> Any:
        with tf.control_dependencies([tf.raw_ops.Save(filename=str(mark), tensor_names=["a"], data=[x])]):
            return tf.identity(x)

    def as_records(x: Any) -> Any:
        records = tf.data.Dataset.from_tensors("x")._variant_tensor
        with tf.control_dependencies([tf.raw_ops.DatasetToTFRecord(input_dataset=records, filename=str(mark), compression_type="")]):
            return tf.identity(x)

    ways: dict[str, Callable[[Any], Any]] = {
        "WriteFile": writes,
        "ReadFile": lambda x: x + tf.cast(tf.strings.length(tf.io.read_file(__file__)), tf.float32),
        "Save": saves,
        "DatasetToTFRecord": as_records,
        "ImmutableConst": lambda x: x + tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[1], memory_region_name=__file__)[0],
        "EagerPyFunc": lambda x: tf.ensure_shape(tf.py_function(lambda y: y, [x], tf.float32), x.shape),
        "in its resources": lambda x: x,
    }
    for name, way in ways.items():
        folder = tmp_path / name.replace(" ", "_")
        module = tf.Module()
        module.model = model
        if name == "in its resources":
            module.table = Resource()
        serve = tf.function(lambda x, way=way: {"y": model(way(x))}, input_signature=[tf.TensorSpec((None, 7, 3), tf.float32)])
        tf.saved_model.save(module, str(folder), {"serving_default": serve.get_concrete_function()})
        mark.unlink(missing_ok=True)
        tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(x))
        assert mark.exists() == (name in ("WriteFile", "Save", "DatasetToTFRecord", "in its resources")), name
        mark.unlink(missing_ok=True)
        if name not in ("DatasetToTFRecord", "ImmutableConst"):
            run_all(folder, tmp_path, mark)
        with pytest.raises(rc.UsageError, match="reaches beyond the model"):
            FileModel(folder, [runner.name]).ran(named(x), [])
        assert not mark.exists(), name


def test_every_operator_of_tensorflow_is_pure_or_known_or_refused() -> None:
    tf = needed("tensorflow", "tensorflow")
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    from rnnconvert.running import sequences

    listed = op_def_pb2.OpList()
    listed.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    refused, stateful = set(), set()
    for definition in listed.op:
        try:
            sequences.refuse_outside(tf.compat.v1.NodeDef(name="n", op=definition.name))
        except NotImplementedError as error:
            assert "reaches beyond the model" in str(error)
            refused.add(definition.name)
            continue
        texts = [each.name for each in definition.input_arg if each.type == tf.string.as_datatype_enum]
        texts += [each.name for each in definition.attr if "string" in each.type]
        strange = [text for text in texts if re.search(r"file|path|dir(s|_|$)|address|prefix|host|url|socket|server|region|protocol", text)]
        assert not strange or definition.name in ("ShardedFilename", "ShardedFilespec"), (definition.name, strange)
        if definition.is_stateful:
            stateful.add(definition.name)
    assert len(listed.op) > 1500 and refused | stateful < {definition.name for definition in listed.op}
    assert refused >= set(REFUSED.split()) & {definition.name for definition in listed.op}
    assert refused & set(NEEDED.split()) == set()
    # Whoever adds one here says why a model needs it, and that it keeps what it keeps in memory.
    groups = r"""(\w*Variable\w*|_?VarHandles?Op|_VarHandlesOp|VarIsInitializedOp|DestroyResourceOp
        |Resource(Gather|Scatter|Strided|Count)\w*|DisableCopyOnRead|IsResourceHandleRefCounting|\w*(Random|Uniform|Normal|Poisson|Binomial|Multinomial|Rng|NonDeterministicInts)\w*
        |TensorArray\w*|Stack\w*|\w*HashTable\w*|LookupTable\w+|InitializeTableV2|_?If|_?While|Case|StatefulPartitionedCall|DeviceIndex
        |Assert|Print|PrintV2|CheckNumerics|CheckNumericsV2|GuaranteeConst|Empty|DeepCopy|_Arg|_Retval|CudnnRNN(Backprop)?(V2|V3)?)"""
    assert [name for name in stateful if not re.fullmatch(groups, name, re.VERBOSE)] == []


REFUSED = """
DatasetToTFRecord ExperimentalDatasetToTFRecord CalibrationStatisticsSaver DumpTensor DistributedSave ImmutableConst
InitializeTableFromTextFile InitializeTableFromTextFileV2 SqlDataset LMDBDataset CSVDataset CSVDatasetV2 MatchingFilesDataset
LoadAndRemapMatrix GenerateVocabRemapping DecodeProtoV2 EncodeProto RecordInput DTensorRestoreV2 RpcClient RpcServer
DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4 RegisterDataset RegisterDatasetV2 WriteFile
ReadFile MatchingFiles Save SaveV2 Restore RestoreV2 MergeV2Checkpoints PyFunc PyFuncStateless EagerPyFunc DebugIdentityV2 Copy
CopyHost RemoteCall DatasetFromGraph Abort XlaCustomCall XlaCustomCallV2 XlaCallModule SymbolicGradient Send Recv _Send _Recv
FileSystemSetConfiguration ImportEvent SummaryWriter
"""
NEEDED = """
VarHandleOp ReadVariableOp AssignVariableOp VariableV2 Assign While StatelessWhile If StatefulPartitionedCall PartitionedCall
TensorArrayV3 TensorArrayReadV3 TensorListReserve TensorListStack HashTableV2 LookupTableFindV2 Assert RandomUniform
StatelessRandomUniformV2 MatMul Const Placeholder Einsum CudnnRNNV3 BlockLSTMV2 GRUBlockCell CTCBeamSearchDecoder DecodeWav Mfcc
StringJoin ShardedFilename NoOp Identity Enter Exit
"""


def test_torchscript_writes_and_reads_no_file(tmp_path: Path) -> None:
    torch, mark = needed("torch", "torch"), tmp_path / "MARK"

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = torch.nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.l(x)[0]

    torch.jit.trace(Net().eval(), torch.zeros(2, 7, 3)).save(tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    (code,) = [name for name in parts if name.endswith(f"{Path(__file__).stem}.py") or name.endswith("code/__torch__.py")][:1] or [""]
    code = code or next(name for name in parts if "/code/" in name and name.endswith(".py") and b"def forward" in parts[name])
    text = parts[code].decode()
    start = text.index(":\n", text.index("def forward", text.index("l:") if "l:" in text else 0)) + 2

    def planted(*lines: str) -> bytes:
        return (text[:start] + "".join(f"    {line}\n" for line in lines) + text[start:]).encode()

    ways = (
        (f'torch.save(x, "{mark}")',), (f'ops.aten.save(x, "{mark}")',), (f'torch . save(x, "{mark}")',), (f'(torch.save)(x, "{mark}")',),
        ("f = torch.save", f'f(x, "{mark}")'), ("t = torch", f't.save(x, "{mark}")'), ("t = ops.aten", f't.save(x, "{mark}")'),
        (f'(ops.aten.save)(x, "{mark}")',), ("(torch.  # a comment", f'     save)(x, "{mark}")'), (f'torch.save  (  # (\n x, "{mark}")',),
        (f'getattr(torch, "save")(x, "{mark}")',), (f'getattr(torch, "s\\141ve")(x, "{mark}")',), (f'x.save("{mark}")',),
        (f'getattr(x, "save")("{mark}")',), (f'torch.save(x, "{mark}") # type: int',),
    )  # fmt: skip
    for number, lines in enumerate(ways):
        file = written(tmp_path / f"evil{number}.pt", {**parts, code: planted(*lines)})
        with contextlib.suppress(RuntimeError):  # torch does not take each of them
            torch.jit.load(file)(torch.zeros(2, 7, 3))
        assert mark.exists() or number > 10, lines
        mark.unlink(missing_ok=True)
        if number < 4:
            run_all(file, tmp_path, mark)
        with pytest.raises(rc.UsageError, match=r"reaches beyond the model|not written as torch writes"):
            FileModel(file, ["torch-cpu"])
        assert not mark.exists(), lines
    # Two entries of one name, and one whose name torch finds in other letters.
    double = tmp_path / "double.pt"
    for first, second in ((code, code), (code, code[:-2] + "PY")):
        with zipfile.ZipFile(double, "w") as archive:
            for name, data in parts.items():
                if name == code:
                    archive.writestr(first, data)
                    archive.writestr(second, planted(*ways[0]))
                else:
                    archive.writestr(name, data)
        with pytest.raises(rc.UsageError, match="two entries"):
            FileModel(double, ["torch-cpu"])
    double.write_bytes(b"PK\x03\x04PTMF" + (tmp_path / "good.pt").read_bytes())
    with pytest.raises(rc.UsageError, match="does not begin as one"):
        FileModel(double, ["torch-cpu"])
    assert FileModel(tmp_path / "good.pt", ["torch-cpu"]).ran(named(np.ones((2, 7, 3), "f4")), [])[0].outputs


def test_operators_of_torchscript_are_reached_by_name_alone() -> None:
    torch = needed("torch", "torch")
    from rnnconvert.formats.pytorch.run_script import _operators, refuse_outside_code

    refused = _operators()
    named = {schema.name for schema in torch._C._jit_get_all_schemas() if any(each.name == "filename" for each in schema.arguments)}
    assert {"aten::save", "aten::from_file"} <= named <= refused
    assert not refused & {f"aten::{name}" for name in ("lstm", "gru", "tanh", "einsum", "format", "warn", "_print", "gelu", "pad", "to")}
    for code in (
        "x = torch", "x = ops", "x = ops.aten", "x = __torch__", "x = __torch__.torch", "f(torch)", "[ops]", "x = (torch if y else ops)",
        "x = __torch__.torch.classes.inductor.Loader()", "x = __torch__.torch.classes", "x = ops.c10d.send",
        "x = ops.debugprims.load_tensor",
        "f = getattr", 'getattr(x, "sa" "ve")', "getattr(x, y)", r'getattr(x, "\x73ave")', 'getattr(x, name="save")', "x.y(z).from_file",
        "(x).save", "x[0].save", "def f(x: torch.save): pass", "class A(torch.save): pass", "@torch.save\ndef f(): pass", "rpc_async(x)",
        "import __torch__.a as torch", "from torch import save", 'f"{torch}"', "x = torch.load", "ops.prim.rpc_sync(x)", "a.load()",
        "x = lambda: torch.save", "with torch.save(): pass", "x: torch.save = 1", "# type: x\n", "é = 1", "x =", "x\f= 1", "x\r= 1",
        "(" * 5000 + ")" * 5000, "-" * 200_000 + "1",
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match=r"reaches beyond the model|not written as torch writes"):
            refuse_outside_code(code.encode(), "code/a.py", refused)
    for code in (
        "import __torch__.a\nop_version_set = 1", 'x = getattr(self, "0")', 'raise_("cannot load: torch.save(x)")  # torch.save',
        "x = ops.prim.NumToTensor(torch.size(x, 0))", "x = annotate(List[Tensor], [])", "y = uninitialized(Tensor)", "z = CONSTANTS.c0",
        "def f(self: __torch__.torch.nn.modules.rnn.LSTM, x: Dict[str, Tensor]) -> Tuple[Tensor, Optional[int]]:\n  return torch.lstm(x)",
        "class A(NamedTuple):\n  y : Tensor", 'class B(Module):\n  __annotations__["0"] = __torch__.A', "x = ops.not_registered.mine(x)",
        "x : __torch__.torch.classes.quantized.LinearPackedParamsBase = y", 'torch.format("{}", x)', "print(x)", "while c:\n  x = x.add(y)",
    ):  # fmt: skip
        refuse_outside_code(code.encode(), "code/a.py", refused)


def test_scripts_that_reach_for_nothing_run(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    from rnnconvert.formats.pytorch.run_script import refuse_outside_archive

    (tmp_path / "net.py").write_text(SCRIPTED)
    spec = importlib.util.spec_from_file_location("scripted_net", tmp_path / "net.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scripted_net"] = module
    spec.loader.exec_module(module)
    net = module.Net().eval()
    quantised = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(3, 4)), {torch.nn.Linear})
    scripted = torch.jit.script(net)
    for number, model in enumerate((scripted, torch.jit.freeze(scripted), torch.jit.script(quantised))):
        model.save(tmp_path / f"{number}.pt")
        refuse_outside_archive(str(tmp_path / f"{number}.pt"))
    assert FileModel(tmp_path / "0.pt", ["torch-cpu"]).ran(named(np.ones((2, 7, 3), "f4")), [])[0].outputs


def test_outputs_that_are_no_numbers_are_refused_with_their_names(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    x = helper.make_tensor_value_info("x", kinds.FLOAT, [1, 2, 3])
    y = helper.make_tensor_value_info("y", kinds.FLOAT, [1, 2, 3])
    text = helper.make_tensor_value_info("out", kinds.STRING, [1, 2, 3])
    several = helper.make_tensor_sequence_value_info("out", kinds.FLOAT, None)
    plain = helper.make_node("Tanh", ["x"], ["y"])
    for name, node, output in (
        ("text", helper.make_node("Cast", ["x"], ["out"], to=kinds.STRING), text),
        ("several values", helper.make_node("SequenceConstruct", ["x", "x"], ["out"]), several),
    ):
        graph = helper.make_graph([plain, node], "g", [x], [y, output])
        file = tmp_path / "m.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
        with pytest.raises(RnnConvertError, match=f"its output out is {name}"):
            FileModel(file, ["onnxruntime-cpu"]).ran(named(np.ones((1, 2, 3), "f4")), [])

    class Text(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x, "a"

    class Number(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return {"n": x.size(1)}

    for name, module in (("1 is a str", Text()), ("n is a int", Number())):
        module.w = torch.nn.Parameter(torch.ones(2, 3))
        torch.jit.script(module).save(tmp_path / "m.pt")
        with pytest.raises(RnnConvertError, match=f"its output {name}"):
            FileModel(tmp_path / "m.pt", ["torch-cpu"]).ran(named(np.ones((1, 2, 3), "f4")), [])


SCRIPTED = """
from typing import Dict, List, NamedTuple, Optional
import torch
from torch import nn, Tensor

class Gave(NamedTuple):
    y: Tensor
    last: Tensor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(8, 5)
        self.heads = nn.ModuleList([nn.Sequential(nn.Linear(5, 4), nn.ReLU()), nn.Sequential(nn.Linear(5, 4), nn.Tanh())])
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor, h: Optional[Tensor] = None):
        y, _ = self.rnn(x)
        steps: List[Tensor] = []
        norms: Dict[str, Tensor] = {}
        for t in range(y.size(1)):
            h = self.cell(y[:, t], h)
            steps.append(h)
        if h is None:
            raise ValueError(f"cannot load {x.shape}: use torch.save(x)")
        for number, head in enumerate(self.heads):
            norms[str(number)] = self.norm(head(h))
        i = 0
        while i < 3 and bool(y.sum() > -1e9):
            i += 1
        gave = Gave(torch.stack(steps, 1), norms["0"] * i)
        assert gave.y.dim() == 3, "three axes"
        return gave.y, gave.last
"""


def test_no_pickle_of_arrays_or_weights_is_executed(tmp_path: Path) -> None:
    mark, good = tmp_path / "MARK", tmp_path / "good.onnx"
    rc.convert(ROOT / "examples" / "encoder.keras", good)
    arrays = np.array([Marks(mark)], dtype=object)
    np.save(tmp_path / "evil.npy", arrays, allow_pickle=True)
    np.savez(tmp_path / "evil.npz", x=arrays)
    for name in ("evil.npy", "evil.npz"):
        for words in (
            ("transplant", ROOT / "examples" / "encoder.keras", "--into", ROOT / "examples" / "encoder.keras", "-o", tmp_path / "o.keras",
             "--verify", tmp_path / name),
            ("verify", good, good, "--inputs", tmp_path / name),
            ("convert", tmp_path / name, tmp_path / "o.onnx", "--verify"),
        ):  # fmt: skip
            result = call(*words)
            assert result.exit_code in (2, 3, 4), (words, result.output)
            assert not mark.exists(), words
    for name in ("evil.pt", "evil.pkl", "evil.joblib", "evil.pdparams"):
        (tmp_path / name).write_bytes(pickle.dumps({"weight_ih_l0": np.zeros((4, 3), "f4"), "evil": Marks(mark)}, 4))
        run_all(tmp_path / name, tmp_path, mark)


def hostile_pickles(mark: Path) -> dict[str, bytes]:
    """Return pickles of Paddle's form, each of which makes a file when Python opens it, or has names of functions in it."""
    arrays = {"weight_ih_l0": np.zeros((4, 3), "f4")}
    nested: Any = {**arrays, "more": {"deep": [Marks(mark)]}}
    return {
        **{f"protocol {number}": pickle.dumps({**arrays, "evil": Marks(mark)}, number) for number in (2, 3, 4)},
        "nested": pickle.dumps(nested, 4),
        "instead of a dictionary": pickle.dumps(Marks(mark), 2),
        "a dotted name": b"\x80\x04}\x8c\x01a\x8c\x05numpy\x8c\x0cndarray.dump\x93s.",
        "an attribute of a module": b"\x80\x04}\x8c\x01a\x8c\x05numpy\x8c\x04load\x93s.",
        "an extension": b"\x80\x02}X\x01\x00\x00\x00a\x82\x01s.",
        "a persistent object": b"\x80\x02}X\x01\x00\x00\x00aPb\ns.",
    }


def test_paddle_opens_no_pickle_that_names_more_than_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def load(file: str, return_numpy: bool) -> Any:
        opened.append(file)
        return pickle.loads(Path(file).read_bytes(), encoding="latin1")

    paddle = types.SimpleNamespace(set_device=lambda _: None, load=load)
    monkeypatch.setitem(sys.modules, "paddle", paddle)
    mark, file = tmp_path / "MARK", tmp_path / "evil.pdparams"
    for name, data in hostile_pickles(mark).items():
        file.write_bytes(data)
        with pytest.raises((NotImplementedError, pickle.UnpicklingError, ValueError)):
            paddle_run.answer({"file": str(file), "layers": []})
        assert not opened and not mark.exists(), name
    layer = {"weight_ih_l0": np.zeros((4, 3), "f4"), "bias_ih_l0": np.ones(4, "f8")}
    forms = [
        pickle.dumps({**layer, "scale": np.float32(1)}, 4),
        *(pickle.dumps(kind(layer), number) for kind in (dict, collections.OrderedDict) for number in (2, 3, 4)),
        pickle.dumps({**layer, "named": ("lstm_0.w_0", layer["weight_ih_l0"]), "StructuredToParameterName@@": {}}, 4),
    ]
    paddle_params.write(file, layer)
    monkeypatch.setattr(paddle_run, "_run", lambda *_: {"y": 1})
    monkeypatch.setattr(paddle_run, "_parameters", lambda loaded, _: loaded)
    for data in [*forms, file.read_bytes()]:
        file.write_bytes(data)
        assert paddle_run.answer({"file": str(file), "layers": [], "x": np.zeros(1), "hidden": [], "how": {}}) == {"y": 1}
        assert opened.pop() == str(file)


def test_no_loader_opens_pickles() -> None:
    """Every call of a loader that could execute a pickle says that it may not."""
    asked = {("np", "load"): ("allow_pickle", False), ("numpy", "load"): ("allow_pickle", False), ("torch", "load"): ("weights_only", True)}
    seen: set[tuple[str, str]] = set()
    for file in (path for folder in ("rnnconvert", "formats", "cli") for path in Path(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
                continue
            call = node.func.value.id, node.func.attr
            assert call not in {("pickle", "load"), ("pickle", "loads"), ("pickle", "Unpickler"), ("joblib", "load")}, file
            if call in asked:
                seen.add(call)
                word, value = asked[call]
                assert any(word_of.arg == word and getattr(word_of.value, "value", None) is value for word_of in node.keywords), (
                    file,
                    node.lineno,
                )
    assert seen >= {("np", "load"), ("torch", "load")}

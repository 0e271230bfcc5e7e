"""The folders beside this file, written by PaddlePaddle 1.8.5 itself, and what it made of them.

With Python 3.7:  pip install paddlepaddle==1.8.5 "protobuf<3.21"
python tests/golden/fluid/make.py
"""

import pathlib
import shutil
import sys

import numpy as np
import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.proto import framework_pb2

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from paddle_programs import without_places  # noqa: E402  (it lies beside the folder of this script)

X = np.random.RandomState(1).uniform(-1, 1, (2, 5, 3)).astype("float32")
D = 4


def gru(**words):
    """A dynamic_gru behind its fc."""

    def network(x):
        return layers.dynamic_gru(layers.fc(x, 3 * D), D, **words)

    return network


def lstm(bias=None, **words):
    """A dynamic_lstm behind its fc."""

    def network(x):
        return layers.dynamic_lstm(layers.fc(x, 4 * D, bias_attr=bias), 4 * D, **words)[0]

    return network


def two(x):
    """Two layers, the second from the end, and a classifier."""
    first = layers.dynamic_gru(layers.fc(x, 3 * D), D)
    second = layers.dynamic_gru(layers.fc(first, 3 * D), D, is_reverse=True)
    layers.fc(second, 2)
    return second


NETWORKS = {
    "gru": gru(),
    "origin": gru(origin_mode=True),
    "relu": gru(candidate_activation="relu", gate_activation="sigmoid", is_reverse=True),
    "lstm": lstm(),
    "plain": lstm(bias=False, use_peepholes=False),
    "two": two,
}


def run(name, network):
    """Random parameters of a network in a folder, and what it gives."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        output = network(fluid.data("x", [None, 3], "float32", lod_level=1))
        executor = fluid.Executor(fluid.CPUPlace())
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            executor.run(startup)
            random = np.random.RandomState(2)
            for parameter in main.all_parameters():
                tensor = scope.find_var(parameter.name).get_tensor()
                tensor.set(random.uniform(-0.7, 0.7, parameter.shape).astype("float32"), fluid.CPUPlace())
            rows = fluid.create_lod_tensor(X.reshape(-1, 3), [[5, 5]], fluid.CPUPlace())
            (found,) = executor.run(main, {"x": rows}, [output], return_numpy=False)
            shutil.rmtree(str(FOLDER / name), ignore_errors=True)
            fluid.io.save_params(executor, str(FOLDER / name), main)
            if name in ("gru", "lstm", "two"):
                folder = str(FOLDER / f"{name}_inference")
                shutil.rmtree(folder, ignore_errors=True)
                fluid.io.save_inference_model(folder, ["x"], [output], executor, main, params_filename="__params__")
                without_places(pathlib.Path(folder, "__model__"), framework_pb2.ProgramDesc)
    return np.array(found).reshape(2, 5, D)


def main():
    answers = {name: run(name, network) for name, network in NETWORKS.items()}
    np.savez(str(FOLDER / "answers"), x=X, **answers)


if __name__ == "__main__":
    main()

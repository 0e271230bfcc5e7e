"""The libraries that audio plug-ins run models with, compiled of their sources: no registry has them as a package.

    RNNCONVERT_RTNEURAL  a checkout of jatinchowdhury18/RTNeural, which has Eigen and a reader of JSON with it
    RNNCONVERT_NAM       one of sdatkinson/NeuralAmpModelerCore, which takes RTNeural's Eigen

Where the variables name none, what needs them is left out.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_BOTH = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <vector>
"""
_RTNEURAL = """
#include <RTNeural/RTNeural.h>
int main(int count, char **words) {
    std::ifstream stream(words[1]);
    nlohmann::json document;
    stream >> document;
#ifdef UNITS
    RTNeural::ModelT<float, WIDTH, OUTPUTS, RTNeural::LSTMLayerT<float, WIDTH, UNITS>, RTNeural::DenseT<float, UNITS, OUTPUTS>> fixed;
    auto *model = &fixed;
    model->parseJson(document);
    const size_t inputs = WIDTH, outputs = OUTPUTS;
#else
    auto model = RTNeural::json_parser::parseJson<float>(document);
    const size_t inputs = (size_t)model->getInSize(), outputs = (size_t)model->getOutSize();
#endif
    const size_t steps = (size_t)atol(words[2]), sequences = (size_t)atol(words[3]);
    std::vector<float> x(steps * sequences * inputs);
    alignas(64) float step[1024];
    timespec begin, end;
    float sum = 0;
    if (fread(x.data(), sizeof(float), x.size(), stdin) != x.size()) return 1;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (size_t sequence = 0; sequence < sequences; sequence++) {
        model->reset();
        for (size_t t = 0; t < steps; t++) {
            memcpy(step, &x[(sequence * steps + t) * inputs], inputs * sizeof(float));
            sum += model->forward(step);
            if (count < 5) fwrite(model->getOutputs(), sizeof(float), outputs, stdout);
        }
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    if (count > 4)
        printf("%g %g", ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / (double)sequences, sum);
    return 0;
}
"""
_NAM = """
#include <NAM/lstm.h>
#include <json.hpp>
int main(int count, char **words) {
    timespec begin, end;
    double taken = 0;
    std::ifstream stream(words[1]);
    nlohmann::json document;
    stream >> document;
    const auto &config = document["config"];
    const int inputs = config["input_size"], outputs = config.value("out_channels", 1);
    const size_t steps = (size_t)atol(words[2]), sequences = (size_t)atol(words[3]);
    std::vector<float> x(steps * inputs);
    std::vector<std::vector<double>> in(inputs, std::vector<double>(steps)), out(outputs, std::vector<double>(steps));
    std::vector<double *> from, to;
    for (auto &channel : in) from.push_back(channel.data());
    for (auto &channel : out) to.push_back(channel.data());
    for (size_t sequence = 0; sequence < sequences; sequence++) {
        std::vector<float> weights = document["weights"];
        nam::lstm::LSTM model(inputs, outputs, config["num_layers"], inputs, config["hidden_size"], weights);
        if (fread(x.data(), sizeof(float), x.size(), stdin) != x.size()) return 1;
        for (size_t t = 0; t < steps; t++)
            for (int i = 0; i < inputs; i++) in[i][t] = x[t * inputs + i];
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
        model.process(from.data(), to.data(), (int)steps);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        taken += (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        for (size_t t = 0; count < 5 && t < steps; t++)
            for (int i = 0; i < outputs; i++) {
                float y = (float)out[i][t];
                fwrite(&y, sizeof y, 1, stdout);
            }
    }
    if (count > 4) printf("%g", taken / (double)sequences);
    return 0;
}
"""


_PLAIN: dict[str, tuple[str, ...]] = {"RTNEURAL": ("-DRTNEURAL_USE_STL=1",), "NAM": ()}
"""The compiler's words for models of any sizes."""
_FAST = {"RTNEURAL": ("-DRTNEURAL_USE_EIGEN=1", "-O3", "-march=native"), "NAM": ("-O3", "-march=native")}
"""Those for such models that are timed."""


def checkout(name: str) -> Path | None:
    """The folder of a library, "RTNEURAL" or "NAM"; None where no variable names it."""
    folder = os.environ.get(f"RNNCONVERT_{name}")
    return Path(folder) if folder else None


@functools.lru_cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="audio-plugins-")


@functools.lru_cache
def program(name: str, *words: str) -> Path:
    """Compile the program of a library, once for each choice of the compiler's words, and return its path."""
    library, other = checkout(name), checkout("RTNEURAL")
    assert library is not None and other is not None
    place = Path(_folder().name)
    path = place / f"{name.lower()}{len(list(place.iterdir()))}"
    eigen = ["-isystem", str(other / "modules" / "Eigen")]
    if name == "RTNEURAL":
        code, parts = _BOTH + _RTNEURAL, [library / "RTNeural" / "RTNeural.cpp"] if "-DRTNEURAL_USE_STL=1" in words else []
        paths = ["-std=c++17", "-DRTNEURAL_DEFAULT_ALIGNMENT=16", f"-I{library}", f"-I{library / 'modules' / 'json'}"]
    else:
        code, parts = _BOTH + _NAM, [library / "NAM" / f"{part}.cpp" for part in ("lstm", "dsp", "activations", "util")]
        paths = ["-std=c++20", "-DNAM_SAMPLE=double", f"-I{library}", f"-I{library / 'Dependencies' / 'nlohmann'}"]
    source = path.with_suffix(".cpp")
    source.write_text(code)
    subprocess.run(["g++", "-O2", "-w", *paths, *eigen, *words, *map(str, parts), str(source), "-o", str(path)], check=True)
    return path


def outputs(name: str, path: Path, x: Any) -> Any:
    """What a library makes of a file on sequences (batch, time, values), each begun anew; likewise."""
    data = np.ascontiguousarray(x, np.float32)
    batch, steps = data.shape[:2]
    command = [str(program(name, *_PLAIN[name])), str(path), str(steps), str(batch)]
    done = subprocess.run(command, input=data.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.float32).reshape(batch, steps, -1)


def seconds(name: str, path: Path, x: Any, sequences: int) -> float:
    """How long a library takes for one of so many equal sequences (1, time, values), of a model that is read from its file as it runs."""
    command = [str(program(name, *_FAST[name])), str(path), str(x.shape[1]), str(sequences), "time"]
    data = np.repeat(np.ascontiguousarray(x, np.float32), sequences, 0).tobytes()
    return float(subprocess.run(command, input=data, capture_output=True, check=True).stdout.split()[0])

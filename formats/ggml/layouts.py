"""The Silero VAD in ggml: the arrays of its LSTM cell, which are PyTorch's.

Source: whisper.cpp, models/convert-silero-vad-to-ggml.py for the arrays; src/whisper.cpp, whisper_vad_build_lstm_layer for the gates.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "ggml",
    "ggml (whisper.cpp's Silero VAD)",
    "the files of convert-silero-vad-to-ggml.py, of Silero 5 and 6",
    "corpus: the LSTM of whisper.cpp's own for-tests-silero-v6.2.0-ggml.bin is that of Silero's ONNX model of 6.2, bit for bit. "
    "whisper.cpp itself was not run",
    (
        "of all files of ggml only Silero's have a recurrent layer; others, and numbers other than float32 and float16, are refused",
        "files are only read",
    ),
    separator=".",
    family="deployment",
)

LSTM = Layout(
    "ggml.lstm",
    "lstm",
    "i f g o",
    (
        Tensor("weight_ih", "input", "(gate hidden) in"),
        Tensor("weight_hh", "recurrent", "(gate hidden) in"),
        Tensor("bias_ih", "input_bias", "(gate hidden)"),
        Tensor("bias_hh", "recurrent_bias", "(gate hidden)"),
    ),
    "src/whisper.cpp, whisper_vad_build_lstm_layer",
    "the LSTM of its decoder",
    writable=False,
    holds=Holds(layers=False, directions=1),
)

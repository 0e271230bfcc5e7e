"""The command line's offers for ONNX alone."""

from __future__ import annotations

from rnnconvert.core.room_command import RoomCommand

COMMANDS = (
    RoomCommand(
        name="fuse",
        what="Turn the loops of an ONNX model into fast nodes",
        summary="Rewrite the ONNX model MODEL with one RNN, GRU or LSTM node for each recurrent layer.",
        examples=(
            "rnnconvert fuse model.onnx -o fast.onnx",
            "rnnconvert fuse model.onnx -o fast.onnx --dry-run",
            "rnnconvert fuse model.onnx -o fast.onnx --force --json",
        ),
        notes="Exporters write a recurrent layer as a Loop, a Scan or step by step. Each is recognized by what it computes, and "
        "replaced only if onnxruntime gives the same numbers, for the layer and for the whole model. What is not proved stays "
        "unchanged, and the reason is printed. If nothing can be replaced, nothing is written (exit code 4).",
        function="rnnconvert.formats.onnx.fuse.files.fuse",
        source="MODEL",
        target="FAST.onnx",
        flag="--output",
        watched=True,
    ),
)

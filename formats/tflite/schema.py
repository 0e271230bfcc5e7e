"""The fields of TFLite's schema that are read or written here, and its numbers.

Source: tensorflow/lite/schema/schema.fbs; the places of the fields are as in its tables, from 0.
"""

from __future__ import annotations

IDENTIFIER = b"TFL3"
VERSION = 3

# Model, SubGraph, Tensor, QuantizationParameters, Operator, OperatorCode, Buffer, SignatureDef, TensorMap.
MODEL = {"version": 0, "operator_codes": 1, "subgraphs": 2, "description": 3, "buffers": 4, "signature_defs": 7}
SUBGRAPH = {"tensors": 0, "inputs": 1, "outputs": 2, "operators": 3, "name": 4}
TENSOR = {
    "shape": 0,
    "type": 1,
    "buffer": 2,
    "name": 3,
    "quantization": 4,
    "is_variable": 5,
    "sparsity": 6,
    "shape_signature": 7,
    "has_rank": 8,
    "external_buffer": 10,
}
QUANTIZATION = {"scale": 2, "zero_point": 3, "details_type": 4, "quantized_dimension": 6}
OPERATOR = {"opcode_index": 0, "inputs": 1, "outputs": 2, "builtin_options_type": 3, "builtin_options": 4, "intermediates": 8}
CODE = {"deprecated_builtin_code": 0, "custom_code": 1, "version": 2, "builtin_code": 3}
BUFFER = {"data": 0, "offset": 1, "size": 2}
SIGNATURE = {"inputs": 0, "outputs": 1, "signature_key": 2, "subgraph_index": 4}
TENSOR_MAP = {"name": 0, "tensor_index": 1}

TYPES = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 4: "<i8", 7: "<i2", 9: "i1", 10: "<f8"}
"""The element types that weights, biases and their indices may have, by their numbers."""

FUNCTIONS = {0: "linear", 1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh", 5: "sign_bit"}
TANH = 4

DEQUANTIZE, LSTM, RNN, CUSTOM, SEQUENCE_RNN, SEQUENCE_LSTM, BOTH_RNN, BOTH_LSTM = 6, 16, 24, 32, 35, 44, 46, 52
REVERSE, WHILE, BROADCAST_TO, STABLEHLO_WHILE = 105, 119, 130, 200
NAMES = {
    LSTM: "LSTM",
    RNN: "RNN",
    SEQUENCE_RNN: "UNIDIRECTIONAL_SEQUENCE_RNN",
    SEQUENCE_LSTM: "UNIDIRECTIONAL_SEQUENCE_LSTM",
    BOTH_RNN: "BIDIRECTIONAL_SEQUENCE_RNN",
    BOTH_LSTM: "BIDIRECTIONAL_SEQUENCE_LSTM",
}
_OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED
HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU
RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV
SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD
REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL
FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N
GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES
CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL
GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN
BITCAST BITWISE_XOR RIGHT_SHIFT
"""
OPERATORS = dict(enumerate(_OPERATORS.split()))
"""The names of the operators by their codes; of StableHLO's, which follow, a message shows the code."""

OPTIONS = {
    LSTM: (14, {"fused_activation_function": 0, "cell_clip": 1, "proj_clip": 2, "kernel_type": 3, "asymmetric_quantize_inputs": 4}),
    RNN: (7, {"fused_activation_function": 0, "asymmetric_quantize_inputs": 1}),
    SEQUENCE_RNN: (31, {"time_major": 0, "fused_activation_function": 1, "asymmetric_quantize_inputs": 2}),
    SEQUENCE_LSTM: (71, {"fused_activation_function": 0, "cell_clip": 1, "proj_clip": 2, "time_major": 3, "asymmetric_quantize_inputs": 4,
                         "diagonal_recurrent_tensors": 5}),
    BOTH_LSTM: (69, {"fused_activation_function": 0, "cell_clip": 1, "proj_clip": 2, "merge_outputs": 3, "time_major": 4,
                     "asymmetric_quantize_inputs": 5}),
    BOTH_RNN: (70, {"time_major": 0, "fused_activation_function": 1, "merge_outputs": 2, "asymmetric_quantize_inputs": 3}),
}  # fmt: skip
"""For each operator the number of its table of options, and their places."""


def _gates(first: int, gates: tuple[str, ...], name: str, way: str) -> dict[int, str]:
    return {first + index: way + name.format(gate) for index, gate in enumerate(gates)}


_IFCO = ("input", "forget", "cell", "output")


def _lstm(first: int, way: str) -> dict[int, str]:
    """Return the inputs of one direction from its first matrix on, by the layout's names."""
    return {
        **_gates(first, _IFCO, "input_to_{}_weights", way),
        **_gates(first + 4, _IFCO, "recurrent_to_{}_weights", way),
        **_gates(first + 8, ("input", "forget", "output"), "cell_to_{}_weights", way),
        **_gates(first + 11, _IFCO, "{}_gate_bias", way),
        first + 15: f"{way}projection_weights",
    }


def _rnn(first: int, way: str) -> dict[int, str]:
    return {first: f"{way}weights", first + 1: f"{way}recurrent_weights", first + 2: f"{way}bias"}


WEIGHTS = {
    LSTM: _lstm(1, ""),
    SEQUENCE_LSTM: _lstm(1, ""),
    BOTH_LSTM: {**_lstm(1, "fw_"), **_lstm(18, "bw_")},
    RNN: _rnn(1, ""),
    SEQUENCE_RNN: _rnn(1, ""),
    BOTH_RNN: {**_rnn(1, "fw_"), **_rnn(5, "bw_")},
}
"""The inputs of each operator that are weights, by their places."""

STATES = {LSTM: (18, 19), SEQUENCE_LSTM: (18, 19), BOTH_LSTM: (35, 36, 37, 38), RNN: (4,), SEQUENCE_RNN: (4,), BOTH_RNN: (4, 8)}
"""The inputs that are states: hidden, cell; for two directions the forward one's first."""

OTHERS = {
    LSTM: {17: "a bias of its projection", **dict.fromkeys(range(20, 24), "layer normalization")},
    SEQUENCE_LSTM: {17: "a bias of its projection", **dict.fromkeys(range(20, 24), "layer normalization")},
    BOTH_LSTM: {17: "a bias of its projection", 34: "a bias of its projection", **dict.fromkeys(range(39, 48), "an auxiliary input")},
    RNN: {},
    SEQUENCE_RNN: {},
    BOTH_RNN: dict.fromkeys((9, 10, 11), "an auxiliary input"),
}
"""The inputs that change what is computed, and that no other system has."""
COUNTS = {LSTM: 24, SEQUENCE_LSTM: 24, BOTH_LSTM: 48, RNN: 5, SEQUENCE_RNN: 5, BOTH_RNN: 12}
"""How many inputs each operator has; older files leave out those at the end."""

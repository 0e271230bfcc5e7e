"""The limits on what any file may ask for, in one table: docs/reliability.md shows it.

A file that needs more is refused, or the part of it that does is not looked into.
"""


# Reading

STEPS = 2_000_000
"""Steps of work that any reading may take: values, instructions, entries, nodes."""
STEPS_PER_BYTE = 2
"""Steps that each byte of its files adds."""
MEMORY = 64 << 20
"""Bytes that any reading may hold in addition to its files: what it unpacks and computes."""
MEMORY_PER_BYTE = 64
"""Bytes that each byte of its files adds."""
OUTPUT = 64 << 20
"""Bytes that may be written of what any reading gave: an operator or a stride of nothing states numbers that the file does not have."""
OUTPUT_PER_BYTE = 64
"""Bytes that each byte of its files adds."""

# Bytes and texts

UNPACKED_BYTES = 4 << 30
"""Bytes that a compressed file, or the compressed entries of an archive, may come to."""
INFLATION = 1100
"""Times that compressed bytes may grow: Deflate reaches 1032, and a header that claims more is wrong."""
ENCLOSED_FILES = 64
"""Files that are taken out of one."""
ENCLOSED_NESTING = 3
"""Files within one another."""
PICKLE_BYTES = 256 << 20
"""Bytes of one pickle; weights lie outside it, so it is small in any honest file."""
PICKLE_STEPS = 10_000_000
"""Instructions of one pickle, and elements copied by them."""
PICKLE_NAME = 1000
"""Characters of the name of a class or function in a pickle."""
PICKLES = 1000
"""Pickles one after the other in one file."""
JSON_BYTES = 1 << 27
"""Bytes of a JSON file of arrays: its numbers take up to eight times as much memory."""
JSON_LISTS = 1 << 20
"""Lists and objects of a JSON file of arrays: a matrix has one for each row."""
JSON_TEXTS = 1 << 16
"""Keys and texts of a JSON file of arrays."""
JSON_AXES = 8
"""Axes of an array in a JSON file."""
HEADER_BYTES = 100_000_000
"""Bytes of the header of a .safetensors file, as its library has it."""
NPY_HEADER_BYTES = 1 << 16
"""Bytes of the header of a .npy file."""
C_BYTES = 512 << 20
"""Bytes of a source of C."""
C_FILES = 256
"""Files that a source of C includes."""
C_BRACES = 8
"""Braces within braces in a source of C."""
INDEX_BYTES = 1 << 28
"""Bytes of a sorted table: the index of a checkpoint."""
PROGRAM_BYTES = 1 << 28
"""Bytes of a program, or of a graph in XML, without its weights."""
DESCRIPTION_BYTES = 1 << 26
"""Bytes of the description of weights, of a graph or of a configuration."""
ARCHITECTURE_BYTES = 1 << 24
"""Bytes of a file of an architecture, without weights."""
TEXT_BYTES = 1 << 20
"""Bytes of one source of code in an archive, or of a layout file."""
NAME_LENGTH = 4096
"""Characters of a layer's name or of an array's path."""
NAME_BYTES = 1 << 16
"""Bytes of a name in a FlatBuffer."""
PATHS_LENGTH = 1 << 24
"""Characters of all the paths in a file together: a chain of objects multiplies them."""

# Nesting

NESTING = 64
"""Containers within one another in a file."""
MESSAGE_NESTING = 100
"""Messages within one another: as deep as protobuf's own parsers go."""
OBJECT_NESTING = 200
"""Containers and objects within one another that are searched for tensors."""
DOCUMENT_NESTING = 32
"""Layers within layers of a document or a pickle."""
PICKLED_NESTING = 16
"""Dictionaries and lists within one another around pickled parameters."""
LAYER_NESTING = 50
"""Layers within layers of a configuration."""
MODEL_NESTING = 40
"""Models within models of a configuration that is upgraded."""
ARGUMENT_NESTING = 20
"""Lists within lists in the arguments of a call."""
CODE_NESTING = 60
"""Brackets or blocks within one another in code, and calls and attributes after one value."""
CALL_NESTING = 40
"""Calls of functions of code within one another."""
MODULE_NESTING = 60
"""Modules within modules whose steps are followed."""
GRAPH_NESTING = 100
"""Graphs within one another, each call of a function counted."""
FUNCTION_NESTING = 20
"""Functions within one another that a graph is written out from."""
FOLD_NESTING = 120
"""Operations one upon the other that are folded into a constant."""
SHAPE_NESTING = 40
"""Operations one upon the other that a shape is followed through."""
FORMULA_NESTING = 400
"""Operations one upon the other that a formula is read from."""
MASK_NESTING = 50
"""Operations one upon the other that a mask is read from."""

# Counts

AXES = 32
"""Axes of one array."""
REPEATED = 1 << 24
"""Elements that a tensor may have beyond the elements of its storage."""
REPEATED_NUMBERS = 1 << 32
"""Numbers that a file may state by repeating fewer: one may stand for all of a constant."""
OBJECTS = 5_000_000
"""Values of a pickle that are visited: shared parts are visited wherever they are, and can multiply."""
ENTRIES = 1_000_000
"""Entries of all dictionaries and lists of a document: one list may occur in many places."""
FOLDER_FILES = 20_000
"""Files of one folder that are read."""
SHARD_FILES = 1 << 12
"""Files that a manifest names."""
LAYERS = 1024
"""Layers of a JSON document."""
FLAT_LAYERS = 4096
"""Layers of a flat vector of parameters."""
NET_LAYERS = 1 << 16
"""Layers of a text that lists them."""
MODEL_LAYERS = 20_000
"""Layers of a model that is upgraded."""
LAYER_CALLS = 1 << 15
"""Calls of layers in a whole model."""
SIZE = 1 << 24
"""A size that a description states of a layer; a larger one would only make other numbers overflow."""
SEARCHED_ARRAYS = 5_000
"""Arrays that are searched by their places: a network has hundreds, and each may begin a layer."""
SCOPES = 10_000
"""Graphs of one program that are visited, each call of a function counted."""
CLASSES = 10_000
"""Classes of code that are looked up in one archive."""
STATEMENTS = 1 << 16
"""Statements of code that are followed."""
PROGRAM_OPERATIONS = 1 << 16
"""Operators of an exported program that are followed."""
SHARED_LOOKS = 1 << 22
"""Looks at tensors that share elements."""
WRITTEN_OPERATIONS = 200_000
"""Operations that a graph is written out in, a function's once for each call."""

# Layers in other operations

PUSHED_ELEMENTS = 1 << 25
"""Elements that one pass over a graph may push."""
PUSHED_OPERATORS = 1 << 18
"""Operators that one pass over a graph may apply."""
SHAPE_NUMBERS = 2_000
"""Whole numbers that are followed: shapes have few, and tables have many."""
PROOF_NODES = 1 << 20
"""Nodes that one proof of a layer may compute; a function of a number counts as several."""
PROOF_WORK = 1 << 36
"""Multiplications that one proof may take."""
PROOF_NUMBERS = 1 << 26
"""Stored numbers that one proof may hold."""
COUNTED_OPERATIONS = 200
"""Operations that count the steps of a loop."""
UNITS = 1 << 16
"""Units of a layer: a file may state a matrix that it does not have."""
MATRIX_NUMBERS = 1 << 28
"""Numbers of one matrix of a formula: a file may state one that it does not have."""
FORMULA_PARTS = 400
"""Parts of a formula. A value that is used again counts again: k squares of squares are 2^k parts."""
TRACED_NUMBERS = 1 << 24
"""Stored numbers that a formula may be read from."""
TRIED_NUMBERS = 1 << 24
"""Numbers of a sequence that is tried: other axes may have any stated length."""
CHAINS = 8
"""Chains of products with one matrix, such as one for each direction."""

"""Code that Keras and TensorFlow would execute while they load a model, refused before they see it.

Keras's safe mode holds only for some versions and kinds of file: tf_keras executes the code of a Lambda in HDF5, and Keras before 3.9
imports any module that a file names. TensorFlow runs functions of a SavedModel that make and fill its resources. Sources:
keras/src/saving/serialization_lib.py (3.15), tf_keras/src/layers/core/lambda_layer.py, tensorflow/python/saved_model/load.py (2.21).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rnnconvert.running.sequences import refuse_outside

_THEIRS = re.compile(r"(keras|tf_keras|tensorflow|keras_core)(\.|$)")
_REACHES_FILES = re.compile(r"(keras|tf_keras)\.(src\.)?(utils|saving|models|export|applications|datasets)(\.|$)")
"""Modules of Keras with functions that load, download or write."""


def refuse_code(config: Any, loader: str) -> None:
    """Raise NotImplementedError for a model's configuration that brings code, or has functions called that belong to no model.

    loader  what would execute it, for the message
    """
    for value in _dictionaries(config):
        kind, settings = value.get("class_name"), value.get("config")
        inside = settings if isinstance(settings, Mapping) else {}
        named = f" ({inside['name']})" if isinstance(inside.get("name"), str) else ""
        if kind == "Lambda" and (inside.get("function_type") in ("lambda", "raw") or _brings_module(inside)):
            raise NotImplementedError(f"a Lambda layer{named} brings Python code, which {loader} would execute")
        if kind in ("__lambda__", "TorchModuleWrapper") or inside.get("class_name") == "__lambda__":
            raise NotImplementedError(f"a {kind}{named} brings code, which {loader} would execute")
        module = value.get("module")
        of_user = module == "builtins" and value.get("registered_name") == "function"  # as Keras names a function of the user's own
        if kind == "function" and isinstance(module, str) and not of_user and (not _THEIRS.match(module) or _REACHES_FILES.match(module)):
            raise NotImplementedError(f"a function of the module {module!r} is named in it, which {loader} would call")


def _brings_module(settings: Mapping[str, Any]) -> bool:
    modules = (settings.get("module"), settings.get("output_shape_module"), settings.get("mask_module"))
    return any(isinstance(module, str) and not _THEIRS.match(module) and module != "__main__" for module in modules)


def _dictionaries(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every dictionary in a configuration."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value


def checked(folder: str) -> Any:
    """Return the MetaGraphDef of a SavedModel whose objects reach for nothing beyond it while they are made.

    Raises NotImplementedError for others.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((Path(folder) / "saved_model.pb").read_bytes())
    if not message.meta_graphs:
        raise NotImplementedError("the SavedModel has no graph")
    for meta_graph in message.meta_graphs:
        _check_nodes(meta_graph, (), _made_by(meta_graph.object_graph_def))
    served = [each for each in message.meta_graphs if "serve" in each.meta_info_def.tags]
    return (served or message.meta_graphs)[0]


def _made_by(objects: Any) -> Iterator[str]:
    """Yield the functions that make, fill and restore the objects of a SavedModel."""
    for node in objects.nodes:
        places = [child.node_id for child in node.children if child.local_name in ("_create_resource", "_initialize", "_destroy_resource")]
        places += [saver.restore_function for saver in node.saveable_objects.values()]
        for function in (objects.nodes[place] for place in places if 0 < place < len(objects.nodes)):
            yield from function.function.concrete_functions
            yield function.bare_concrete_function.concrete_function_name


def check_graph(meta_graph: Any, outputs: Iterable[str]) -> None:
    """Raise NotImplementedError where these outputs of a graph, or what is run before them, reach beyond the model."""
    collections = [values for key, values in meta_graph.collection_def.items() if key in ("saved_model_main_op", "legacy_init_op")]
    first = [name for values in collections for name in values.node_list.value]
    first += [
        entry.name
        for key, signature in meta_graph.signature_def.items()
        if key == "__saved_model_init_op"
        for entry in signature.outputs.values()
    ]
    _check_nodes(meta_graph, [*outputs, *first], ())
    restoring = meta_graph.saver_def.restore_op_name
    _check_nodes(meta_graph, [restoring] if restoring else [], (), {"RestoreV2", "Restore"})


def _check_nodes(meta_graph: Any, outputs: Iterable[str], functions: Iterable[str], allowed: Iterable[str] = ()) -> None:
    """Check every operator that outputs of a graph, and functions in it, lead to."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    library = {function.signature.name: function for function in meta_graph.graph_def.library.function}
    # TensorFlow may run a function in place of another that says it implements the same, and its gradient.
    implementations: dict[bytes, list[str]] = {}
    for name, function in library.items():
        implementations.setdefault(function.attr["api_implements"].s if "api_implements" in function.attr else b"", []).append(name)
    gradients = {gradient.function_name: gradient.gradient_func for gradient in meta_graph.graph_def.library.gradient}
    waiting = [("node", _plain(name)) for name in outputs] + [("function", name) for name in functions]
    seen = set(waiting)

    def follow(kind: str, name: str) -> None:
        if (kind, name) not in seen:
            seen.add((kind, name))
            waiting.append((kind, name))

    while waiting:
        kind, name = waiting.pop()
        if kind == "node":
            inside = [nodes[name]] if name in nodes else []
            for source in inside[0].input if inside else ():
                follow("node", _plain(source))
        else:
            inside = list(library[name].node_def) if name in library else []
            if inside and "api_implements" in library[name].attr:
                for other in implementations[library[name].attr["api_implements"].s]:
                    follow("function", other)
            follow("function", gradients.get(name, name))
        for node in inside:
            if node.op not in allowed:
                refuse_outside(node)
            for value in node.attr.values():
                for function in ([value.func] if value.HasField("func") else [], value.list.func):
                    for each in function:
                        follow("function", each.name)
            follow("function", node.op)  # a function may be called as an operator is


def _plain(name: str) -> str:
    """Return the node of a tensor's name, or of an edge's."""
    return name.lstrip("^").partition(":")[0]

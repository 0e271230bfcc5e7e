"""Whole nets in ncnn: as they are, or on batches, as their description reads and gives them."""

from __future__ import annotations

from functools import partial

from rnnconvert.formats.ncnn import param
from rnnconvert.formats.ncnn.export_net import BySequence, NetPort
from rnnconvert.formats.ncnn.lowering import outputs
from rnnconvert.models.runners import FileModel, ModelApart, whole_file

NAME = "ncnn"

open_file = partial(whole_file, NAME)


def as_described(net: FileModel) -> ModelApart:
    """Return a net as a model of batches, whose outputs are all blobs that no layer reads."""
    rows = param.read(net.path)
    read = {blob for row in rows for blob in row.bottoms}
    reads, gives = ([NetPort(name, (), 0, "") for name in side] for side in (net.names, outputs(rows)))
    return BySequence(net, (reads, gives), [blob for row in rows for blob in row.tops if blob not in read])

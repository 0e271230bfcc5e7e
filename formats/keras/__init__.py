"""Keras."""

FILES = {
    "keras": {
        "kinds": "hdf5 zip:model.weights.h5 bundle folder json npz safetensors pickle msgpack",
        "endings": ".keras .weights.h5 .h5 .hdf5",
        "usual": ".h5 .hdf5",
        "named": "saved_model.pb .yaml .yml",
    }
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

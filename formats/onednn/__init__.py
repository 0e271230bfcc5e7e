"""oneDNN."""

FILES = {"onednn": {"kinds": "npz hdf5 safetensors msgpack", "endings": ".npz .safetensors .h5"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

"""JAX's libraries: Equinox, Flax linen and nnx, Haiku."""

FILES = {
    "equinox": {"kinds": "npy npz msgpack pickle folder", "endings": ".npz .eqx"},
    "flax": {"kinds": "msgpack npz pickle safetensors folder", "endings": ".msgpack .npz", "usual": ".msgpack"},
    "haiku": {"kinds": "npz msgpack pickle folder", "endings": ".npz .msgpack"},
    "nnx": {"kinds": "npz msgpack pickle folder", "endings": ".npz .msgpack"},
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

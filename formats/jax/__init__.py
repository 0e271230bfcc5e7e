"""JAX's libraries: Equinox, Flax linen and nnx, Haiku."""

FILES = {
    "equinox": {"kinds": "npy npz msgpack folder", "endings": ".npz .eqx"},
    "flax": {"kinds": "msgpack npz folder", "endings": ".msgpack .npz", "usual": ".msgpack"},
    "haiku": {"kinds": "npz msgpack folder", "endings": ".npz .msgpack"},
    "nnx": {"kinds": "npz msgpack folder", "endings": ".npz .msgpack"},
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

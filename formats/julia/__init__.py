"""Julia's frameworks: Flux, Knet, Lux."""

FILES = {
    "flux": {"kinds": "bson jld2 npz", "endings": ".bson .npz .jld2", "unwritten": ".jld2", "named": ".bson"},
    "knet": {"kinds": "bson jld2 npz", "endings": ".bson .npz .jld2", "unwritten": ".jld2", "named": ".bson"},
    "lux": {"kinds": "bson jld2 npz", "endings": ".bson .npz .jld2", "unwritten": ".jld2", "named": ".bson"},
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

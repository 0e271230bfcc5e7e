"""PaddlePaddle, and its Fluid of before 2.0."""

FILES = {
    "fluid": {"kinds": "folder", "endings": ""},
    "paddle": {
        "kinds": "pickle",
        "endings": ".pdparams .pdmodel .pdiparams",
        "named": ".pdmodel .pdiparams",
        "unwritten": ".pdmodel .pdiparams",
        "begins": ((0, b'{"base_code"'),),
    },
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

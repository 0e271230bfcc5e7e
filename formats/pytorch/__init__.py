"""PyTorch."""

FILES = {
    "pytorch": {
        "kinds": "zip:data.pkl zip:model_weights_config.json npz safetensors tar folder",
        "endings": ".pt .pth .bin .ckpt .th .safetensors .safetensors.index.json",
        "usual": ".safetensors",
        "named": ".safetensors .safetensors.index.json",
        "unwritten": ".safetensors.index.json",
        "begins": ((2, b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."),),
    },
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

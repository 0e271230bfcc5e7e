"""PyTorch."""

FILES = {
    "pytorch": {
        "kinds": "zip:data.pkl zip:model_weights_config.json zip:model.json npz safetensors pickle tar folder",
        "endings": ".pt .pth .bin .ckpt .th .safetensors .safetensors.index.json",
        "usual": ".safetensors",
        "named": ".safetensors .safetensors.index.json",
        "unwritten": ".safetensors.index.json",
        # torch.save's magic number before version 1.6, as the pickle protocols 2 and 3, 4 and 5, 0 and 1 write it
        "begins": (
            (2, b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."),
            (11, b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."),
            (0, b"L119547037146038801333356L\n."),
        ),
    }
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""

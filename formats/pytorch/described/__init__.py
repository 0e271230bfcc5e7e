"""TorchScript archives and exported programs as rnnconvert.scaffolding describes models."""

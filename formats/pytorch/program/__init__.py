"""Programs of torch.export and TorchScript in one form, and the layers in them."""

"""The files that torch.save, torch.jit.save and torch.export write, read without running them."""

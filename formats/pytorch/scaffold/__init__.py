"""A described model as the text of PyTorch: formats/pytorch/scaffold_to.py."""

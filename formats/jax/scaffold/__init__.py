"""A described model as the text of Flax nnx: formats/jax/scaffold_to.py."""

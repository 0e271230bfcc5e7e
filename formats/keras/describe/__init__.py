"""A whole Keras model as rnnconvert.scaffolding describes models: formats/keras/scaffold_from.py."""

"""A whole Keras model as rnnconvert.scaffold describes models: formats/keras/scaffold_from.py."""

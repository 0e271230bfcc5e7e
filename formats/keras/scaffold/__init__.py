"""A described model as the text of Keras 3: formats/keras/scaffold_to.py."""

"""Old Keras models, rewritten for Keras 3."""

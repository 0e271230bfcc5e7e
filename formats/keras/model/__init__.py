"""The model that a Keras configuration states: layers, the calls that connect them, their masks and what lies between recurrent ones."""

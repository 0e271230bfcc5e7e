"""What lies around the recurrent nodes of a model: its other layers, by name."""

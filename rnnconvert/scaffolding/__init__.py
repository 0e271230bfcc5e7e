"""The model around the weights, written in another framework: described once, written by each target."""

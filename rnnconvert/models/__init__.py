"""Foreign weights into the model that somebody already has: whole checkpoints, layer by layer, or not at all."""

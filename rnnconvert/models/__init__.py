"""Foreign weights into the model that somebody already has: whole checkpoints, layer by layer, all or nothing."""

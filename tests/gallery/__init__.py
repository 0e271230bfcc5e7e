"""Real models that others trained, rebuilt whole in another framework and filled with their weights."""

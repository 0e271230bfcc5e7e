"""Programs of ATen operators as rnnconvert.scaffolding describes models: live modules here, and exported programs from their files."""

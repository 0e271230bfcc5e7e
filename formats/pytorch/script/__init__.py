"""TorchScript's code: parsed, evaluated, and what it does between layers."""

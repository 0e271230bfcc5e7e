"""Whether two models compute the same: inputs that reveal errors, runs, a tolerance that rounding explains, and a verdict."""

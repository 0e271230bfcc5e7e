"""Whether two models compute the same: inputs that can fail, runs, a tolerance that rounding explains, and a verdict."""

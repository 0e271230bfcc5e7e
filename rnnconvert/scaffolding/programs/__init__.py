"""Whole programs of any room, as rnnconvert.scaffolding describes models."""

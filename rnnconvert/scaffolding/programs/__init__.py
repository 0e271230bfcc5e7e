"""Whole programs, of whatever room wrote them, as rnnconvert.scaffolding describes models."""

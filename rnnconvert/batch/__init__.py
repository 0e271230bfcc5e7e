"""Thousands of files at once: a journal that is resumed, processes that may die, stores behind URLs."""

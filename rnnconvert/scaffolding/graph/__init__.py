"""Described models as graphs of basic operations, which rooms write as files of their own."""

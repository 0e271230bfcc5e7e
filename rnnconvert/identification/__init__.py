"""Unknown weights named: which conventions give the outputs that somebody kept, or what names and numbers suggest."""

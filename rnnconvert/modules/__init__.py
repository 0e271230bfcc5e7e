"""Old names of modules that the documentation and saved models name: they go with the release after 0.1."""

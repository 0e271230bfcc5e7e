"""One module a framework: where its recurrent layers are in its files, and which cells they are."""

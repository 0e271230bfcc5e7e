"""One module a runtime: recurrent layers run by a framework on its own arrays."""

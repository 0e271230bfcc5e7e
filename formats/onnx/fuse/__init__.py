"""Recognition of layers in other operators, which replaces them by recurrent nodes."""

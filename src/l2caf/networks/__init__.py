"""Networks: which layer, how it is laid out, and how to run what follows it."""

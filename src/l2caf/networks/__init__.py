"""What a name stands for: a network with its preprocessing, its class names and its weights."""

"""The same block function here, in a process or on a cluster."""

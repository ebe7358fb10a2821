"""Solvers: from a problem to a filter."""

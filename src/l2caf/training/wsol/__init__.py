"""Weakly supervised localisation: classifiers whose maps find objects."""

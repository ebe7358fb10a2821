"""Evaluation: how good the maps are, measured on labelled images."""

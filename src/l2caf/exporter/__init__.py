"""Writes a network and its exact maps as an ONNX file; `exported` runs it."""

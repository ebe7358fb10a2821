"""Embeddings and what is near them: embed pictures, index them, ask for neighbours, and show why two match."""

"""Training of networks: one loop for every recipe.

A new recipe is one file with a subclass of `Recipe`, and one line in RECIPES; its fields become the options of
`l2caf train KEY`. The table and what it leads to are light enough for a help text.
"""

from __future__ import annotations

from ..table import Entry, Table

RECIPES = Table(
    "recipe",
    Entry(
        "retrieval",
        "Train a network whose embeddings find pictures of the same class.",
        "l2caf.training.retrieval.recipe:RetrievalRecipe",
    ),
    Entry(
        "video",
        "Train a recurrent network whose embeddings find clips of the same class.",
        "l2caf.training.video.recipe:VideoRecipe",
    ),
    Entry(
        "wsol",
        "Train a classifier whose maps find objects, from labels of pictures alone.",
        "l2caf.training.wsol.recipe:WsolRecipe",
    ),
)
"""What can be trained, by the name of its command."""

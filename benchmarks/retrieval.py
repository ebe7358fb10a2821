"""What does it cost to explain embeddings beside computing them, and to search among ten thousand of them?"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

import l2caf
from l2caf.retrieval.index import Index
from l2caf.training.retrieval.projection import embedding_before_training

from .row import Row, side_by_side
from .subjects import batch

SIZE, EXPLAINED = 16, 1_000
VECTORS, DIMENSION = 10_000, 128


def rows() -> list[Row]:
    return [_explaining(), *(_searching(normalized=normalized) for normalized in (True, False))]


def _explaining() -> Row:
    network = embedding_before_training("efficientnet_lite0", DIMENSION)
    images = batch(SIZE)

    def embed() -> None:
        with torch.inference_mode():
            network(images)

    def explain() -> None:
        assert l2caf.explain(network, images).maps.shape == (SIZE, 224, 224)

    # Rounds of one batch each, side by side, until a thousand were explained.
    times = side_by_side({"embed": embed, "explain": explain}, rounds=-(-EXPLAINED // SIZE), warm_up=2)
    ratio = times.ratio("explain", "embed")
    return Row(
        f"EfficientNet-Lite0 → {DIMENSION} numbers, batch {SIZE}: explaining {EXPLAINED:,} embeddings ÷ computing them",
        f"{ratio:.2f} ({times.spread('explain', 'embed')})",
        "≤ 1.25",
        ratio <= 1.25,
        {"ratio": ratio, "ms_an_image": times.milliseconds("explain") / SIZE},
    )


def _searching(*, normalized: bool) -> Row:
    vectors = np.random.default_rng(0).normal(size=(VECTORS, DIMENSION)).astype(np.float32)
    names = [str(place) for place in range(VECTORS)]
    took = []
    for _ in range(5):
        began = time.perf_counter()
        Index.of(vectors, names, normalized=normalized).query(vectors, 10)
        took.append(time.perf_counter() - began)
    median = statistics.median(took)
    how = "by cosine" if normalized else "by distance"
    return Row(
        f"indexing {VECTORS:,} × {DIMENSION} and querying all of them for 10 neighbours, {how}",
        f"{median:.2f} s",
        "< 2 s",
        median < 2,
        {"seconds": median},
    )

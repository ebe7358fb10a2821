"""A sample of the zoo, the nastiest of it: no network is explained by what is no map of its input.

`make zoo` judges all of them and writes `docs/zoo.md`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from zoo.judge import Verdict, judge
from zoo.networks import NETWORKS, named

# What each is to get: a right map, or a refusal where there is none.
SAMPLE = {
    "HieraForImageClassification": "a pooler of (B, C, 1)",
    "YolosForObjectDetection": "tokens behind the patches",
    "DetrForObjectDetection": "queries",
    "VideoMAEForVideoClassification": "colour for depth",
    "ASTForAudioClassification": "the embedding axis",
    "CLIPModel": "two pictures and three texts",
    "SiglipModel": "the text tower",
    "BertForSequenceClassification": "text alone",
    "waveform_crepe": "(B, T)",
    "transformer_1d": "the embedding axis",
    "frames_and_gru": "times",
    "siamese": "the other input",
    "lightning_batch": "a dict inside the arguments",
    "prompts_20": "prompts",
    "shuffled_positions": "every position elsewhere",
    "mirrored": "left for right",
    "rolled": "shifted by half of the picture",
    "padding_only": "a mean laid out as a map",
    "capsules": "capsules",
    "generator": "a picture from a vector",
    "sees_a_quarter": "a map of one quarter",
}


@pytest.mark.filterwarnings("ignore")  # what third parties say while they build a network
@pytest.mark.parametrize("name", SAMPLE)
def test_a_network_is_never_silently_wrong(name: str) -> None:
    judged = judge(named(name))
    assert judged.verdict in (Verdict.RIGHT, Verdict.REFUSED_RIGHTLY), f"{judged.verdict}: {judged.layer} {judged.note}"


def test_the_zoo_is_as_large_as_it_is_promised_to_be() -> None:
    sources = Counter(network.source for network in NETWORKS)
    assert sources["timm"] >= 40
    assert sources["torchvision"] >= 15
    assert sources["transformers"] >= 30
    assert sources["odd"] >= 35
    assert 2 * sum(network.held_out for network in NETWORKS) >= len(NETWORKS)
    assert len({network.name for network in NETWORKS}) == len(NETWORKS)

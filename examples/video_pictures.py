"""Draw the pictures of clips in the docs.

python examples/video_pictures.py filmstrip docs/pictures/filmstrip.png CLIP NETWORK
python examples/video_pictures.py match docs/pictures/match-clips.png

The strip is that of a clip of yours and a network that takes clips (MODULE:FUNCTION). For the match, a network is
trained first, on clips that the program makes, which takes some minutes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from l2caf.tasks.match import MatchRequest, match_pictures
from l2caf.tasks.moments import Sampling
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.train import TrainRequest, demo_data, train_network
from l2caf.tasks.video import VideoRequest, explain_clips
from l2caf.training.video.recipe import VideoRecipe


def filmstrip(out: Path, clip: str, network: str) -> None:
    """Moments of one stretch from the middle of a clip."""
    with tempfile.TemporaryDirectory() as folder:
        request = VideoRequest(
            [Path(clip)], Path(folder), network=NetworkChoice(network), sampling=Sampling(window="middle")
        )
        (filmed,) = explain_clips(request).written
        shutil.copyfile(filmed.files.strip, out)


def match(out: Path, *, recipe: VideoRecipe | None = None) -> None:
    """Three clips that match one, by a network that was trained on moving shapes."""
    recipe = recipe or VideoRecipe(size=128, views=2, iterations=300)
    with tempfile.TemporaryDirectory() as folder:
        clips = demo_data(Path(folder))
        trained = train_network(TrainRequest(recipe, "clips", clips, Path(folder) / "network"))
        network = NetworkChoice(str(trained.result.checkpoint))
        query = sorted((clips / "disc-left").iterdir())[3]
        found = match_pictures(MatchRequest(query, clips, Path(folder) / "why", network=network, top=3))
        shutil.copyfile(found.picture, out)


if __name__ == "__main__":
    kind, out, *rest = sys.argv[1:]
    {"filmstrip": filmstrip, "match": match}[kind](Path(out), *rest)

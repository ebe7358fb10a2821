"""Networks that were exported as ONNX files, with their exact maps: run by ONNX Runtime, with no torch.

    from l2caf.exported import load

    network = load("model.onnx")
    answer = network.explain("photo.jpg")
    answer.save("where.png")

`l2caf.export` writes such files; `card` says what is in one.
"""

from .answer import Answer as Answer
from .card import CONVERGED as CONVERGED
from .card import MAPS as MAPS
from .card import Card as Card
from .network import ExportedNetwork as ExportedNetwork
from .network import load as load

__all__ = ["CONVERGED", "MAPS", "Answer", "Card", "ExportedNetwork", "load"]

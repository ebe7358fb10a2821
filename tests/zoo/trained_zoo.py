"""Trained networks on real input, where the data are at hand: `L2CAF_DATA`, or `shared/data` beside the checkout."""

from __future__ import annotations

import gzip
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from l2caf.images import open_image
from l2caf.networks.catalogue import DEFAULT, load
from l2caf.networks.imports import import_torchvision
from l2caf.networks.model import Model

from .entry import Network, Reading, first

DATA = Path(os.environ.get("L2CAF_DATA", Path(__file__).parents[3] / "shared" / "data"))
WEIGHTS = DATA / "weights"
EXAMPLES = Path(__file__).parents[2] / "examples"


def _weights(name: str) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return {key: value.float() for key, value in load_file(WEIGHTS / f"{name}-fp16.safetensors").items()}


def _architecture(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, WEIGHTS / "architectures" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _photographs(model: Model) -> Tensor:
    files = sorted((DATA / "imagenet-val" / "val").iterdir())[:2]
    return model.batch([model.preprocess(open_image(file)) for file in files])


def _embedded() -> tuple[nn.Module, Any]:
    model = load(DEFAULT)
    return model.network, _photographs(model)


def _resnet50() -> tuple[nn.Module, Any]:
    model = load(f"{EXAMPLES / 'resnet50_v1.py'}:build", weights=WEIGHTS / "resnet50-keras-v1-fp16.safetensors")
    return model.network, _photographs(model)


def _mobilenet_v2() -> tuple[nn.Module, Any]:
    network = import_torchvision().models.mobilenet_v2(weights=None).eval()
    network.load_state_dict(_weights("mobilenet-v2-imagenet"))
    pixels = _photographs(load(DEFAULT)) * 0.502 + 0.498  # back to [0, 1]
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, None, :, None, None]
    return network, (pixels - mean) / deviation


def _i3d() -> tuple[nn.Module, Any]:
    import cv2

    network = _architecture("i3d").I3D().eval()
    network.load_state_dict(_weights("i3d-rgb-kinetics400"))
    video = cv2.VideoCapture(str(DATA / "clips" / "v_SoccerJuggling_g23_c01.avi"))
    frames = np.stack([video.read()[1] for _ in range(56)][40:])[..., ::-1]  # read as blue, green, red
    clip = torch.from_numpy(frames.copy()).permute(3, 0, 1, 2)[None].float() / 127.5 - 1
    height, width = clip.shape[-2:]
    scale = 256 / min(height, width)
    clip = F.interpolate(clip, (16, round(height * scale), round(width * scale)), mode="trilinear")
    top, left = (clip.shape[-2] - 224) // 2, (clip.shape[-1] - 224) // 2
    return network, clip[..., top : top + 224, left : left + 224].contiguous()


def _head() -> tuple[nn.Module, Any]:
    network = _architecture("linknet3d").LinkNet3d().eval()
    network.load_state_dict(_weights("deepbet-linknet3d-bbox"))
    contents = gzip.decompress((DATA / "volumes" / "head-t1.nii.gz").read_bytes())
    size = np.frombuffer(contents, "<i2", 3, offset=42)
    kind = {2: "u1", 4: "<i2", 8: "<i4", 16: "<f4", 512: "<u2"}[int(np.frombuffer(contents, "<i2", 1, offset=70)[0])]
    start = int(np.frombuffer(contents, "<f4", 1, offset=108)[0])
    values = np.frombuffer(contents, kind, int(np.prod(size, dtype=int)), offset=start)
    volume = torch.from_numpy(values.reshape(size, order="F").astype(np.float32))[None, None]
    volume = F.interpolate(volume, (128, 128, 128), mode="trilinear")
    low, high = np.quantile(volume.numpy(), [0.005, 0.995])
    volume = ((volume - low) / (high - low)).clamp(0, 1)
    return network, (volume - volume.mean()) / volume.std() * 0.226 + 0.449


def _tones() -> tuple[nn.Module, Any]:
    network = _architecture("crepe").Crepe().eval()
    network.load_state_dict(_weights("crepe-tiny"))
    times = torch.arange(1024) / 16000
    tones = torch.stack([torch.sin(2 * torch.pi * pitch * times) for pitch in (220.0, 440.0)])
    return network, (tones - tones.mean(dim=1, keepdim=True)) / tones.std(dim=1, keepdim=True)


def _trained(name: str, build: Callable[[], tuple[nn.Module, Any]], *right: Reading, **told: Any) -> Network:
    return Network(name, "trained", build, right, trained=True, held_out=False, **told)


ALL = (
    _trained("embedded EfficientNet-Lite0", _embedded, Reading(r"bn2(\.act)?|head.*|features.*", (7, 7)),
             why="photographs"),
    _trained("ResNet-50", _resnet50, Reading(r"layer4(\.2(\.relu)?)?", (7, 7)), why="photographs"),
    _trained("MobileNetV2", _mobilenet_v2, Reading(r"features(\.18(\.2)?)?", (7, 7)), why="photographs"),
    _trained("I3D", _i3d, Reading(r"Mixed_5[bc]", (2, 7, 7)), why="16 frames of a clip"),
    _trained("LinkNet-3D", _head, Reading(r"down3(\..*)?", (4, 4, 4)), also=r"(?!tp_conv2).*", why="a head, 128³"),
    # Kernels of 64 over 64 positions and fewer see all of the signal, and from conv3 on occlusion finds nothing there.
    _trained("CREPE", _tones, *(Reading(rf"conv{layer}(_BN)?", (cells, 1), first, axes=(1,), default=layer < 3)
                                for layer, cells in enumerate((256, 128, 64, 32, 16, 8), start=1)),
             why="two tones as (B, T): from `conv3` on, each position answers to most of the signal"),
)  # fmt: skip
NETWORKS = ALL if WEIGHTS.is_dir() else ()

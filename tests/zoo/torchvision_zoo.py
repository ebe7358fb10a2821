"""Networks of torchvision, in the smallest configuration that keeps their structure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from l2caf.networks.imports import import_torchvision

from .entry import Columns, Network, Reading, first, last, picture, seeded, tokens

FULL = (3, 224, 288)  # for kernels of 5 and 7 pixels, which reach all over the last map of a smaller picture
CLIP = (8, 64, 96)  # frames, height, width


def models() -> Any:
    return import_torchvision().models


def _build(make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int) -> tuple[nn.Module, Tensor]:
    return seeded(make), picture(batch, *shape)


def _torchvision(
    name: str,
    layer: str,
    grid: tuple[int, ...],
    columns: Columns = first,
    *,
    make: Callable[[], nn.Module] | None = None,
    shape: tuple[int, ...] = (3, 128, 160),
    batch: int = 2,
    select: Any = None,
    held_out: bool = True,
    why: str = "",
) -> Network:
    made = make or (lambda: models().get_model(name, weights=None, num_classes=10))
    right = (Reading(layer, grid, columns),) if layer else ()
    return Network(name, "torchvision", partial(_build, made, shape, batch), right, select, held_out, why)


def _convnext() -> nn.Module:
    convnext = models().convnext
    setting = [
        convnext.CNBlockConfig(16, 32, 1),
        convnext.CNBlockConfig(32, 64, 1),
        convnext.CNBlockConfig(64, None, 1),
    ]
    return convnext.ConvNeXt(setting, num_classes=10)


def _vit() -> nn.Module:
    return models().vision_transformer.VisionTransformer(
        image_size=128, patch_size=16, num_layers=2, num_heads=2, hidden_dim=64, mlp_dim=128, num_classes=10
    )


def _swin_v2() -> nn.Module:
    swin = models().swin_transformer
    return swin.SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[1, 2, 2], num_heads=[1, 2, 2], window_size=[4, 4], num_classes=10,
        block=swin.SwinTransformerBlockV2, downsample_layer=swin.PatchMergingV2,
    )  # fmt: skip


def _maxvit() -> nn.Module:
    return models().maxvit.MaxVit(
        input_size=(128, 128), stem_channels=16, partition_size=4, block_channels=[16, 32, 32], block_layers=[1, 1, 1],
        head_dim=16, stochastic_depth_prob=0.0, num_classes=10,
    )  # fmt: skip


def _small_backbone(classifier: str) -> nn.Module:
    """FCN and DeepLab on a ResNet of one block each: (B, 3, H, W) -> a dict with an answer for every pixel."""
    segmentation = models().segmentation
    resnet = models().resnet.ResNet(
        models().resnet.Bottleneck, [1, 1, 1, 1], width_per_group=16, replace_stride_with_dilation=[False, True, True]
    )
    backbone = models()._utils.IntermediateLayerGetter(resnet, {"layer4": "out"})
    if classifier == "fcn":
        return segmentation.FCN(backbone, segmentation.fcn.FCNHead(2048, 5), None)
    return segmentation.DeepLabV3(backbone, segmentation.deeplabv3.DeepLabHead(2048, 5), None)


def _r3d() -> nn.Module:
    resnet = models().video.resnet
    return resnet.VideoResNet(
        resnet.BasicBlock, [resnet.Conv3DSimple] * 4, layers=[1, 1, 1, 1], stem=resnet.BasicStem, num_classes=10
    )


def _mvit() -> nn.Module:
    mvit = models().video.mvit
    block = partial(mvit.MSBlockConfig, kernel_q=[3, 3, 3], kernel_kv=[3, 3, 3])
    setting = [
        block(1, 16, 16, stride_q=[1, 1, 1], stride_kv=[1, 2, 2]),
        block(2, 16, 32, stride_q=[1, 2, 2], stride_kv=[1, 2, 2]),
        block(2, 32, 32, stride_q=[1, 1, 1], stride_kv=[1, 1, 1]),
    ]
    return mvit.MViT(
        spatial_size=CLIP[1:], temporal_size=CLIP[0], block_setting=setting, residual_pool=True,
        residual_with_cls_embed=False, rel_pos_embed=True, proj_after_attn=True, num_classes=10,
    )  # fmt: skip


def _swin3d() -> nn.Module:
    return models().video.swin_transformer.SwinTransformer3d(
        patch_size=[2, 4, 4], embed_dim=24, depths=[1, 2, 2], num_heads=[1, 2, 2], window_size=[4, 4, 4], num_classes=10
    )


class _RaftFlow(nn.Module):
    """RAFT with its last flow alone."""

    def __init__(self) -> None:
        super().__init__()
        self.raft = models().optical_flow.raft_small(weights=None)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return self.raft(one, other, num_flow_updates=2)[-1]


def _raft() -> tuple[nn.Module, Any]:
    return seeded(_RaftFlow), (picture(1, 3, 128, 160), picture(1, 3, 128, 160, seed=1))


class _Detector(nn.Module):
    """SSD on a small MobileNet, up to its scores for every anchor: what follows needs a compiled `nms`."""

    def __init__(self) -> None:
        super().__init__()
        self.ssd = models().detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)

    def forward(self, images: list[Tensor]) -> Tensor:
        batch, _ = self.ssd.transform(images)
        return self.ssd.head(list(self.ssd.backbone(batch.tensors).values()))["cls_logits"]


def _detector() -> tuple[nn.Module, Any]:
    # As many pictures as colours: a row of the output for each colour of the first, as far as shapes tell.
    return seeded(_Detector), ([picture(1, 3, 96, 128, seed=seed)[0] for seed in range(3)],)


NETWORKS = (
    _torchvision("alexnet", r"avgpool", (6, 6), why="pooled to 6×6 whatever it was"),
    _torchvision("squeezenet1_1", r"classifier\.[12]|features(\.12)?", (7, 9), why="class scores, then a mean"),
    _torchvision("shufflenet_v2_x0_5", r"conv5(\.2)?", (4, 5)),
    _torchvision("googlenet", r"inception5b", (4, 5),
                 make=lambda: models().googlenet(weights=None, num_classes=10, aux_logits=False, init_weights=False)),
    _torchvision("mobilenet_v3_small", r"features(\.12(\.2)?)?", (7, 9), shape=FULL, held_out=False),
    _torchvision("efficientnet_b0", r"features(\.8(\.2)?)?", (7, 9), shape=FULL),
    Network("efficientnet_b0, 128×160", "torchvision",
            partial(_build, lambda: models().efficientnet_b0(weights=None, num_classes=10), (3, 128, 160), 2),
            (Reading(r"features(\.8(\.2)?)?", (4, 5)), Reading(r"features\..*", (4, 5), default=False)),
            why="kernels of 5 on a map of 4×5: its cells hardly differ in where they look"),
    _torchvision("regnet_y_400mf", r"trunk_output(\.block4)?", (4, 5)),
    _torchvision("convnext", r"features(\.4)?", (8, 10), make=_convnext, held_out=False),
    _torchvision("vit", r"encoder\.layers\.encoder_layer_1\.ln_1", (8, 8), tokens(1), make=_vit, shape=(3, 128, 128),
                 held_out=False, why="its attention returns a pair"),
    _torchvision("swin_v2", r"permute", (8, 10), make=_swin_v2, held_out=False),
    _torchvision("maxvit", r"blocks\.2(\..*)?", (8, 8), make=_maxvit, shape=(3, 128, 128)),
    _torchvision("fcn_resnet", r"classifier\.[0-3]|backbone\.layer4", (8, 10), select="out", shape=(3, 64, 80), batch=1,
                 make=lambda: _small_backbone("fcn"), why="an answer for every pixel"),
    _torchvision("deeplabv3_resnet", r"classifier\.[0-3]|backbone\.layer4", (8, 10), select="out",
                 shape=(3, 64, 80), batch=1,
                 make=lambda: _small_backbone("deeplab"), held_out=False, why="an answer for every pixel"),
    _torchvision("r3d_18", r"layer4(\.0(\.relu)?)?", (2, 2, 3), make=_r3d, shape=(3, 9, 32, 48), batch=1),
    _torchvision("mvit_v2", r"blocks\.2\.(norm1|attn\.qkv)", (4, 8, 12), tokens(1), make=_mvit, shape=(3, *CLIP),
                 why="tokens of (8 frames, 8×12)"),
    _torchvision("swin3d", r"norm", (4, 4, 6), last, make=_swin3d, shape=(3, *CLIP)),
    Network("raft_small", "torchvision", _raft,
            (Reading(r"raft\.(context_encoder|update_block|mask_predictor).*", (16, 20)),),
            why="two frames; the flow belongs to the first"),
    Network("ssdlite320", "torchvision", _detector, why="a list of pictures in, each without a batch axis"),
)  # fmt: skip

"""Networks of timm, in the smallest configuration that keeps their structure.

Pictures are wider than high wherever an architecture takes them so: a transposed grid then has another shape.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from l2caf.networks.imports import import_timm

from .entry import Columns, Network, Reading, first, last, picture, seeded, tokens

WIDE = (128, 160)
SQUARE = (128, 128)
FULL = (224, 288)  # for kernels of 5 and 7 pixels, which reach all over the last map of a smaller picture
FOURTEENTHS = (112, 140)  # for patches of 14 pixels
# Blocks that are maps by construction, and whose kernels reach all over a map of 4×5.
FAR_REACHING = (
    Reading(r"blocks\..*", (4, 5), default=False),
    Reading(r"blocks\.4\..*", (8, 10), default=False),  # of lcnet: before the last step
)
TOO_SMALL = "kernels of 5 on a map of 4×5: its cells hardly differ in where they look"
SMALL_VIT = {"depth": 2, "embed_dim": 64, "num_heads": 2}
SMALL_SWIN = {"depths": (1, 1, 2, 2), "embed_dim": 24, "num_heads": (1, 2, 2, 4)}


def _build(name: str, size: tuple[int, int], options: dict[str, Any]) -> tuple[nn.Module, Any]:
    timm = import_timm()
    network = seeded(lambda: timm.create_model(name, pretrained=False, num_classes=10, **options))
    return network, picture(2, 3, *size)


def _timm(
    name: str,
    layer: str,
    grid: tuple[int, ...] = (4, 5),
    columns: Columns = first,
    *,
    size: tuple[int, int] = WIDE,
    held_out: bool = True,
    why: str = "",
    others: tuple[Reading, ...] = (),
    **options: Any,
) -> Network:
    right = (Reading(layer, grid, columns), *others)
    label = f"{name}, 128×160" if others and size == WIDE else name
    return Network(label, "timm", partial(_build, name, size, options), right, held_out=held_out, why=why)


def _vit(name: str, layer: str, prefix: int, *, size: tuple[int, int] = WIDE, held_out: bool = True) -> Network:
    return _timm(
        name, layer, (8, 10), tokens(prefix), size=size, held_out=held_out, why=f"{prefix} tokens before the patches",
        img_size=size, **SMALL_VIT,
    )  # fmt: skip


# A class token reads the patches for the last time in the attention of the last block.
READ_BY_CLASS_TOKEN = r"blocks\.1\.(norm1|attn(\.qkv)?)"

NETWORKS = (
    # Convolutional
    _timm("resnet10t", r"layer4(\.0(\.act2)?)?"),
    _timm("resnest14d", r"layer4(\.0(\.act3)?)?"),
    _timm("regnety_002", r"final_conv|s4(\.b7(\.act3)?)?"),
    _timm("mobilenetv4_conv_small_035", r"blocks(\.4(\.0(\.\w+)?)?)?", (7, 9), size=FULL,
          why="the head convolves what is pooled already"),
    _timm("lcnet_035", r"blocks(\.5(\.1(\.\w+)?)?)?", (7, 9), size=FULL),
    _timm("mobilenetv4_conv_small_035", r"blocks(\.4(\.0(\.\w+)?)?)?", others=FAR_REACHING, why=TOO_SMALL),
    _timm("lcnet_035", r"blocks(\.5(\.1(\.\w+)?)?)?", others=FAR_REACHING, why=TOO_SMALL),
    _timm("mnasnet_small", r"bn2(\.act)?", others=FAR_REACHING, why=TOO_SMALL),
    _timm("ghostnet_050", r"blocks(\.9(\.0)?)?"),
    _timm("dla46_c", r"level5(\.root(\.relu)?)?"),
    _timm("densenet121", r"features(\.norm5)?", block_config=(2, 2, 2, 2)),
    _timm("tinynet_e", r"bn2(\.act)?"),
    _timm("mnasnet_small", r"bn2(\.act)?", (7, 9), size=FULL),
    _timm("mobileone_s0", r"final_conv|stages(\.3)?", why="branches side by side, each a convolution"),
    _timm("lambda_resnet26t", r"final_conv|stages(\.3)?", why="layers that look at everything at once"),
    _timm("nf_regnet_b0", r"final_act"),
    _timm("ese_vovnet19b_slim_dw", r"stages(\.3)?"),
    _timm("starnet_s1", r"norm"),
    _timm("mambaout_femto", r"stages(\.3)?", columns=last, why="channels last"),
    _timm("convnextv2_atto", r"norm_pre|stages(\.3)?", depths=(1, 1, 1, 1)),
    # Convolutions and attention
    _timm("edgenext_xx_small", r"norm_pre|stages(\.3)?", depths=(1, 1, 2, 1)),
    _timm("mobilevit_xxs", r"final_conv(\.bn(\.act)?)?", why="unfolds a map into groups of tokens and folds it back"),
    _timm("mobilevitv2_050", r"final_conv|stages(\.4)?", (4, 6), why="rounds the grid up to an even one"),
    _timm("repvit_m0_9", r"stages(\.3)?", depth=(1, 1, 1, 1)),
    _timm("fastvit_t8", r"final_conv(\.act)?", layers=(1, 1, 1, 1)),
    _timm("poolformer_s12", r"stages(\.3)?", why="mixes by pooling"),
    _timm("shvit_s1", r"stages(\.2)?", (2, 3)),
    _timm("swiftformer_xs", r"norm"),
    _timm("efficientformerv2_s0", r"norm", img_size=WIDE),
    _timm("pvt_v2_b0", r"stages(\.3)?"),
    _timm("maxvit_rmlp_pico_rw_256", r"norm", (4, 4), size=SQUARE, img_size=128, why="windows and grids of pixels"),
    _timm("tiny_vit_5m_224", r"stages(\.3)?", (4, 4), size=SQUARE, depths=(1, 1, 2, 1), held_out=False),
    _timm("levit_128s", r"stages(\.2)?", (2, 2), tokens(), size=SQUARE, img_size=128, held_out=False,
          others=(Reading(r"stages\.2\.downsample\.attn_downsample\.kv.*", (4, 4), tokens(), default=False),),
          why="attention without a path around it: with random weights, positions hardly differ"),
    # Attention
    _timm("swin_tiny_patch4_window7_224", r"norm", columns=last, img_size=WIDE, window_size=2, held_out=False,
          why="windows that are shifted and rolled back", **SMALL_SWIN),
    _timm("swinv2_cr_tiny_ns_224", r"stages(\.3)?", img_size=WIDE, **SMALL_SWIN),
    _timm("twins_svt_small", r"norm", columns=tokens(), img_size=WIDE, depths=[1, 1, 2, 2],
          embed_dims=[16, 32, 64, 64]),
    _timm("visformer_tiny", r"norm", img_size=WIDE, depth=(2, 1, 1)),
    _timm("davit_tiny", r"norm_pre|stages(\.3)?", depths=(1, 1, 1, 1), embed_dims=(24, 48, 48, 96),
          num_heads=(1, 2, 2, 4), why="attention over channels"),
    _timm("sequencer2d_s", r"norm", (9, 11), columns=last, layers=(1, 1, 1, 1), why="LSTMs along rows and columns"),
    _timm("hiera_tiny_224", r"blocks\.3(\..*)?", columns=tokens(), img_size=WIDE, stages=(1, 1, 1, 1), embed_dim=24,
          held_out=False, why="tokens in raster order only after the last pooling"),
    _timm("xcit_nano_12_p8_224", r"cls_attn_blocks\.1\.(norm1|attn\.[kv])", (16, 20), tokens(1), img_size=WIDE,
          depth=2, embed_dim=64, why="attention over channels, then a class token"),
    _timm("cait_xxs24_224", r"blocks_token_only\.1\.(norm1|attn\.[kv])", (8, 10), tokens(1), img_size=WIDE, depth=2,
          why="the class token joins late"),
    _timm("tnt_s_patch16_224", r"blocks\.1\.(norm_out|attn_out\.(qk|v))", (8, 8), tokens(1), size=SQUARE, img_size=128,
          depth=2, why="a transformer inside each patch: (patches, pixels, C)"),
    _vit("vit_tiny_patch16_224", READ_BY_CLASS_TOKEN, 1, held_out=False),
    _vit("deit_tiny_distilled_patch16_224", READ_BY_CLASS_TOKEN, 2, held_out=False),
    _vit("vit_small_patch14_reg4_dinov2", READ_BY_CLASS_TOKEN, 5, size=FOURTEENTHS, held_out=False),
    _vit("beit_base_patch16_224", r"norm|blocks(\.1)?", 1),
    _vit("vit_base_patch16_rope_reg1_gap_256", r"norm|blocks(\.1)?", 1),
    _vit("vit_pe_core_tiny_patch16_384", r"attn_pool\.(kv|k_norm)", 1),
    _vit("vit_relpos_small_patch16_rpn_224", r"norm|blocks(\.1)?", 0),
    _timm("naflexvit_base_patch16_gap", r"norm|blocks(\.1)?", (8, 10), tokens(4), **SMALL_VIT),
    _timm("samvit_base_patch16_224", r"neck(\..*)?", (8, 10), img_size=WIDE,
          why="channels last inside, first at its neck", **SMALL_VIT),
)  # fmt: skip

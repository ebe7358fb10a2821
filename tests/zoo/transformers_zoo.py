"""Networks of transformers: classification, detection, segmentation, video, audio, text, and image with text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from l2caf.networks.imports import import_timm

from .entry import Columns, Network, Reading, clip, first, frames, last, picture, reordered, seeded, tokens

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
PIXELS = ("pixel_values",)


def _library() -> Any:
    import_timm()  # transformers imports torchvision and timm without a second thought
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def _build(model: str, config: str, options: dict[str, Any], inputs: Callable[[], Any]) -> tuple[nn.Module, Any]:
    library = _library()
    options = {name: value() if callable(value) else value for name, value in options.items()}
    network = seeded(lambda: getattr(library, model)(getattr(library, config)(**options)))
    if model == "DPTForDepthEstimation":  # a rectifier gives its answer, which is no depth where it is 0 all over
        network.head.head[-2].bias.data.fill_(1.0)
    return network, inputs()


def _image(height: int = 128, width: int = 160, *, channels: int = 3) -> Callable[[], Any]:
    return lambda: {"pixel_values": picture(2, channels, height, width)}


def _words(count: int, length: int = 12) -> Tensor:
    return torch.randint(3, 90, (count, length), generator=torch.Generator().manual_seed(5))


def _hf(
    model: str,
    config: str,
    layer: str = "",
    grid: tuple[int, ...] = (),
    columns: Columns = first,
    *,
    inputs: Callable[[], Any] | None = None,
    select: Any = "logits",
    path: tuple[str, ...] = PIXELS,
    axes: tuple[int, ...] = (),
    right: tuple[Reading, ...] = (),
    held_out: bool = True,
    why: str = "",
    also: str = r"(?!)",
    may_refuse: bool = False,
    **options: Any,
) -> Network:
    right += (Reading(layer, grid, columns, path, axes),) if layer else ()
    build = partial(_build, model, config, options, inputs or _image())
    return Network(model, "transformers", build, right, select, held_out, why, also, may_refuse)


LABELS = {"num_labels": 5}
IDS = {"bos_token_id": 1, "eos_token_id": 2}
TOWER = {**SMALL, "image_size": 64, "patch_size": 8, "projection_dim": 16}
WORDS = {**SMALL, **IDS, "vocab_size": 100, "max_position_embeddings": 16, "projection_dim": 16}
LAYERS = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
DETR = {**LAYERS, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "num_queries": 9}
STAGES = {"embed_dim": 16, "depths": [1, 1, 2, 2], "num_heads": [1, 2, 2, 2], "window_size": 4, "image_size": 128}
PYRAMID = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]}
SOUND = ("input_values",)


def _resnet(*stages: str) -> Any:
    return _library().ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 32, 64], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=list(stages),
    )  # fmt: skip


def _swin() -> Any:
    return _library().SwinConfig(
        **{**STAGES, "depths": [1, 1, 1, 1]}, out_features=["stage1", "stage2", "stage3", "stage4"]
    )


def _video() -> Any:
    return {"pixel_values": clip(2, 8, 3, 64, 96)}


VIDEO = {"image_size": [64, 96], "num_frames": 8, **SMALL, **LABELS}
SPACE_AND_TIME = (1, 3, 4)  # axes of (B, T, C, H, W)

NETWORKS = (
    # Classification
    _hf("ViTForImageClassification", "ViTConfig", r"vit\.layers\.1\.(layernorm_before|attention\.[kv]_proj)", (8, 10),
        tokens(1), image_size=(128, 160), patch_size=16, held_out=False, **SMALL, **LABELS),
    _hf("DeiTForImageClassificationWithTeacher", "DeiTConfig",
        r"deit\.layers\.1\.(layernorm_before|attention\.[kv]_proj)", (8, 8), tokens(2), inputs=_image(128, 128),
        image_size=128, patch_size=16, **SMALL),
    _hf("BeitForImageClassification", "BeitConfig", r"beit\.layernorm|beit\..*layers?\.1", (8, 8), tokens(1),
        inputs=_image(128, 128), image_size=128, patch_size=16, why="a mean without a module, then a norm",
        **SMALL, **LABELS),
    _hf("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersConfig", r"dinov2_with_registers\.layernorm",
        (8, 10), tokens(5), image_size=112, patch_size=14, inputs=_image(112, 140),
        why="class token and four registers", **SMALL, **LABELS),
    _hf("SiglipForImageClassification", "SiglipConfig", r"vision_model\.post_layernorm", (8, 8), tokens(),
        inputs=_image(64, 64), vision_config=TOWER, text_config=WORDS),
    _hf("SwinForImageClassification", "SwinConfig", r"swin\.layernorm", (4, 5), tokens(), held_out=False,
        why="a pooler of (B, C, 1) behind it", **STAGES, **LABELS),
    _hf("Swinv2ForImageClassification", "Swinv2Config", r"swinv2\.layernorm", (4, 5), tokens(),
        why="a pooler of (B, C, 1) behind it", **STAGES, **LABELS),
    _hf("ConvNextV2ForImageClassification", "ConvNextV2Config", r"convnextv2\.encoder(\.stages\.3)?", (4, 5),
        hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], **LABELS),
    _hf("RegNetForImageClassification", "RegNetConfig", r"regnet\.encoder(\.stages\.3)?", (4, 5), embedding_size=8,
        hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], groups_width=8, **LABELS),
    _hf("CvtForImageClassification", "CvtConfig",
        r"cvt\.encoder\.stages\.2\.layers\.2\.attention\.attention\.projection_(key|value)", (4, 5), tokens(1),
        embed_dim=[16, 32, 32], num_heads=[1, 2, 2], depth=[1, 2, 3],
        why="maps, then tokens of 8×10, whose keys and values a stride leaves 4×5", **LABELS),
    _hf("PvtForImageClassification", "PvtConfig", r"pvt\.encoder\.block\.3\.0\..*|pvt\.encoder\.layer_norm", (4, 4),
        tokens(1), inputs=_image(128, 128), image_size=128, why="a class token in the last stage",
        **{**PYRAMID, "hidden_sizes": [16, 16, 32, 32]}, **LABELS),
    _hf("FocalNetForImageClassification", "FocalNetConfig", r"focalnet\.layernorm", (4, 5), tokens(), image_size=128,
        embed_dim=16, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 32, 64], **LABELS),
    _hf("MobileViTForImageClassification", "MobileViTConfig", r"mobilevit\.conv_1x1_exp(\..*)?", (8, 10),
        inputs=_image(256, 320), hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 32],
        initializer_range=0.1, **LABELS),
    _hf("HieraForImageClassification", "HieraConfig",
        r"hiera\.encoder\.stages\.3\.layers\.0\.(attn\.proj|layernorm_after|mlp(\..*)?|drop_path)", (4, 4), tokens(),
        inputs=_image(128, 128), image_size=[128, 128], embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2],
        held_out=False, why="a pooler of (B, C, 1); tokens in no raster order before the last stage", **LABELS),
    # Detection
    _hf("YolosForObjectDetection", "YolosConfig",
        r"vit\.encoder\.layer\.1\.(layernorm_before|attention\.attention\.(key|value))", (8, 10), tokens(1, 9),
        image_size=[128, 160], patch_size=16, num_detection_tokens=9, held_out=False,
        why="nine tokens behind the patches",
        **SMALL, **LABELS),
    _hf("DetrForObjectDetection", "DetrConfig", r"model\.decoder\.layers\.1\.encoder_attn\.[kv]_proj", (4, 5), tokens(),
        backbone_config=lambda: _resnet("stage4"), why="nine queries that are no 3×3", **DETR, **LABELS),
    _hf("ConditionalDetrForObjectDetection", "ConditionalDetrConfig",
        r"model\.decoder\.layers\.1\.encoder_attn\.[kv]_proj",
        (4, 5), tokens(), backbone_config=lambda: _resnet("stage4"), also=r"model\.decoder\.layers\.1\..*",
        **{**DETR, "num_queries": 16}, **LABELS),
    _hf("DeformableDetrForObjectDetection", "DeformableDetrConfig",
        r"model\.decoder\.layers\.1\.encoder_attn\.value_proj", (16, 20), tokens(0, 106),
        backbone_config=lambda: _resnet("stage2", "stage3", "stage4"), also=r"model\.input_proj\..*",
        why="four scales in one row of tokens: a map of the finest, the other three untouched", **DETR, **LABELS),
    # Segmentation and depth: an answer for every pixel
    _hf("SegformerForSemanticSegmentation", "SegformerConfig", r"decode_head\.linear_projections\.3", (4, 5), tokens(),
        also=r"(?!decode_head(\.classifier)?$).*", decoder_hidden_size=32, **PYRAMID, **LABELS),
    _hf("MaskFormerForInstanceSegmentation", "MaskFormerConfig",
        r"model\.transformer_module\.decoder\.layers\.1\.encoder_attn\.[kv]_proj", (4, 4), tokens(),
        also=r"model\..*", inputs=_image(128, 128), select="class_queries_logits", backbone_config=_swin,
        decoder_config=lambda: _library().DetrConfig(**{**DETR, "backbone_config": _resnet("stage4")}),
        fpn_feature_size=32, mask_feature_size=16, why="queries, and pixels of several scales"),
    _hf("DPTForDepthEstimation", "DPTConfig", r"dpt\.(layernorm|encoder.*)", (8, 8), tokens(1), also=r"(?!head).*",
        select="predicted_depth", inputs=_image(128, 128), image_size=128, patch_size=16,
        backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 8, 8], fusion_hidden_size=8, initializer_range=0.1,
        **{**SMALL, "num_hidden_layers": 4}),
    _hf("GLPNForDepthEstimation", "GLPNConfig", r"glpn\.encoder\.layer_norm\.3", (2, 3), tokens(), also=r"(?!head).*",
        select="predicted_depth", inputs=_image(64, 96), decoder_hidden_size=16, **PYRAMID),
    # Video
    _hf("VideoMAEForVideoClassification", "VideoMAEConfig", r"videomae\.encoder\.layer\.1(\.output(\..*)?)?", (4, 4, 6),
        tokens(), axes=SPACE_AND_TIME, inputs=_video, held_out=False, **VIDEO),
    _hf("TimesformerForVideoClassification", "TimesformerConfig",
        right=(
            Reading(r"timesformer\.encoder\.layer\.1\.(layernorm_before|attention\.attention\.qkv)", (8, 4, 4),
                    frames(8, tokens(1)), PIXELS, SPACE_AND_TIME),
            Reading(r"timesformer\.encoder\.layer\.1\.temporal_dense", (8, 4, 4),
                    reordered(tokens(), (2, 0, 1), (4, 4, 8)), PIXELS, SPACE_AND_TIME),
            Reading(r"timesformer\.encoder\.layer\.1\.temporal_dense", (4, 4, 8), tokens(), PIXELS, (3, 4, 1)),
        ),
        inputs=lambda: {"pixel_values": clip(2, 8, 3, 64, 64)}, also=r"timesformer\.encoder\.layer\.1\..*",
        held_out=False, why="tokens in the order (height, width, time)", **{**VIDEO, "image_size": 64}),
    _hf("VivitForVideoClassification", "VivitConfig", r"vivit\.layers\.1\.(layernorm_before|attention\.[kv]_proj)",
        (4, 4, 4), tokens(1), axes=SPACE_AND_TIME, inputs=lambda: {"pixel_values": clip(2, 8, 3, 64, 64)},
        **{**VIDEO, "image_size": 64}),
    # Sound
    _hf("ASTForAudioClassification", "ASTConfig",
        right=(
            Reading(r"audio_spectrogram_transformer\.(layernorm|.*layers?\.1\..*)", (4, 9), tokens(2), SOUND, (2, 1)),
            Reading(r"audio_spectrogram_transformer\.(layernorm|.*layers?\.1\..*)", (9, 4),
                    reordered(tokens(2), (1, 0), (4, 9)), SOUND, (1, 2)),
        ),
        inputs=lambda: {"input_values": picture(2, 1, 96, 48)[:, 0]}, num_mel_bins=48, max_length=96, patch_size=16,
        frequency_stride=10, time_stride=10, held_out=False,
        why="(B, time, frequency); tokens by frequency first", **SMALL, **LABELS),
    _hf("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", r"projector|wav2vec2\.encoder\.layers\.1(\..*)?", (48,),
        tokens(), path=SOUND, axes=(1,), inputs=lambda: {"input_values": picture(2, 1, 4000)[:, 0]},
        conv_dim=(16, 16, 16), conv_stride=(5, 4, 4), conv_kernel=(10, 8, 8), num_feat_extract_layers=3,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, classifier_proj_size=16, why="a waveform (B, T)",
        **SMALL, **LABELS),
    _hf("WhisperForAudioClassification", "WhisperConfig", r"projector|encoder\.layer_norm", (50,), tokens(),
        path=("input_features",), axes=(2,), inputs=lambda: {"input_features": picture(2, 16, 100)}, num_mel_bins=16,
        max_source_positions=50, vocab_size=60, pad_token_id=0, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None, classifier_proj_size=16, why="(B, mel, time) in, (B, time, C) inside",
        **IDS, **LAYERS, **LABELS),
    # Text
    _hf("BertForSequenceClassification", "BertConfig", r"bert\.(embeddings|encoder)\b.*", (12,), tokens(),
        path=("input_ids",), axes=(1,), inputs=lambda: {"input_ids": _words(2)}, may_refuse=True,
        why="text alone: a map of words", vocab_size=100, **SMALL, **LABELS),
    _hf("GPT2LMHeadModel", "GPT2Config", r"transformer\.\w+.*", (12,), tokens(), path=("input_ids",), axes=(1,),
        inputs=lambda: {"input_ids": _words(2)}, may_refuse=True, why="text alone: a map of words", vocab_size=100,
        n_embd=32, n_layer=2, n_head=2),
    _hf("BertModel", "BertConfig", r"encoder\.layer\.1\.(attention\.self\.(key|value))|encoder\.layer\.0", (12,),
        tokens(), select="pooler_output",
        path=("inputs_embeds",), axes=(1,), inputs=lambda: {"inputs_embeds": picture(2, 32, 12).transpose(1, 2)},
        vocab_size=100, may_refuse=True, why="embeddings of words as they are: (B, words, C)", **SMALL),
    # Pictures and text
    _hf("CLIPModel", "CLIPConfig", r"vision_model\.encoder\.layers\.1\.(layer_norm1|self_attn\.[kv]_proj)", (8, 8),
        tokens(1), select="logits_per_image", text_config=WORDS, vision_config=TOWER, why="two pictures, three texts",
        inputs=lambda: {"input_ids": _words(3), "pixel_values": picture(2, 3, 64, 64)}),
    _hf("SiglipModel", "SiglipConfig", r"vision_model\.post_layernorm", (8, 8), tokens(), select="logits_per_image",
        text_config=WORDS, vision_config=TOWER, why="16 words that are no 4×4",
        inputs=lambda: {"input_ids": _words(2, 16), "pixel_values": picture(2, 3, 64, 64)}),
    _hf("ViltForQuestionAnswering", "ViltConfig", r"vilt\.embeddings\.patch_embeddings(\.projection)?", (4, 5),
        inputs=lambda: {"input_ids": _words(2), "pixel_values": picture(2, 3, 64, 80)}, image_size=64, patch_size=16,
        vocab_size=100, max_position_embeddings=16, may_refuse=True, why="draws the order of its patches by chance",
        **SMALL, **LABELS),
    _hf("CLIPSegForImageSegmentation", "CLIPSegConfig", r"decoder\.layers\.1(\..*)?", (8, 8), tokens(1),
        also=r"decoder\.reduces.*|clip\.vision_model.*",
        inputs=lambda: {"input_ids": _words(2), "pixel_values": picture(2, 3, 64, 64)}, text_config=WORDS,
        vision_config=TOWER, projection_dim=16, extract_layers=[0, 1], reduce_dim=16, decoder_num_attention_heads=2,
        decoder_intermediate_size=32, why="a mask for a sentence"),
    _hf("ViTMAEForPreTraining", "ViTMAEConfig", inputs=_image(64, 64), image_size=64, patch_size=8,
        decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=2,
        decoder_intermediate_size=64, why="three quarters of the patches are drawn away by chance", **SMALL),
    # Other
    _hf("PerceiverForImageClassificationLearned", "PerceiverConfig",
        r"perceiver\.(input_preprocessor\.convnet_1x1|encoder\.cross_attention\.attention\.self\.(layernorm2|key|value))",
        (24, 24), tokens(), also=r"perceiver\.input_preprocessor.*", inputs=_image(24, 24), image_size=24,
        num_latents=16, d_latents=32, num_blocks=1, num_self_attends_per_block=1, num_self_attention_heads=2,
        num_cross_attention_heads=1, why="16 latents that are no 4×4", **LABELS),
    _hf("PatchTSTForClassification", "PatchTSTConfig",
        r"model\.encoder\.layers\.1(\..*)?", (3, 8), last, path=("past_values",), axes=(2, 1), also=r".*",
        select="prediction_logits", inputs=lambda: {"past_values": picture(2, 3, 64).transpose(1, 2)},
        num_input_channels=3, context_length=64, patch_length=8, patch_stride=8, d_model=32, num_hidden_layers=2,
        num_attention_heads=2, ffn_dim=64, num_targets=5, held_out=False, may_refuse=True,
        why="(B, time, variables) in, (B, variables, patches, C) inside"),
)  # fmt: skip

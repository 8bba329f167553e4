"""UNets of diffusion with random weights, built by diffusers; nothing is downloaded.

They are named `measurements.diffusion.unets:stable_diffusion_1_5` in the top folder of a clone.
Sizes that diffusers has as defaults are left out. Inputs are those of one denoising step: latents,
a time step and the text encoders' states.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor, nn


def stable_diffusion_1_5(batch_size: int = 1) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the UNet of Stable Diffusion 1.5, 859,520,964 parameters, for images of 512x512.

    Its inputs are (batch, 4, 64, 64), () and (batch, 77, 768). Source of the sizes:
    unet/config.json of stable-diffusion-v1-5, as configs/stable-diffusion/v1-inference.yaml of
    github.com/CompVis/stable-diffusion.
    """
    unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768)
    return unet, _step(batch_size, sample_size=64, text_width=768)


def stable_diffusion_xl(
    batch_size: int = 1,
) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
    """Return the UNet of Stable Diffusion XL, 2,567,463,684 parameters, for images of 1024x1024.

    Its inputs are (batch, 4, 128, 128), () and (batch, 77, 2048), and beside them the pooled text,
    (batch, 1280), and six sizes of the image, (batch, 6). Source of the sizes: unet/config.json of
    stable-diffusion-xl-base-1.0, as configs/inference/sd_xl_base.yaml of
    github.com/Stability-AI/generative-models.
    """
    unet = UNet2DConditionModel(
        sample_size=128,
        block_out_channels=(320, 640, 1280),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2, 10),
        attention_head_dim=(5, 10, 20),
        cross_attention_dim=2048,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
    )
    added = {"text_embeds": torch.randn(batch_size, 1280), "time_ids": torch.randn(batch_size, 6)}
    return unet, _step(batch_size, sample_size=128, text_width=2048), {"added_cond_kwargs": added}


def _step(batch_size: int, *, sample_size: int, text_width: int) -> tuple[Tensor, ...]:
    latents = torch.randn(batch_size, 4, sample_size, sample_size)
    return latents, torch.tensor(981), torch.randn(batch_size, 77, text_width)

"""How the page looks: system fonts, calm colours, one column on a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]


def theme() -> Any:
    """No font comes from anywhere but the visitor's own machine."""
    made = gr.themes.Base(
        primary_hue=gr.themes.colors.teal,
        secondary_hue=gr.themes.colors.slate,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        font=FONTS,
        font_mono=MONO,
    )
    return made.set(
        body_background_fill="*neutral_50",
        body_text_color="*neutral_800",
        body_text_color_subdued="*neutral_600",
        block_background_fill="white",
        block_background_fill_dark="*neutral_900",
        block_border_width="1px",
        block_border_color="*neutral_200",
        block_border_color_dark="*neutral_700",
        block_shadow="none",
        block_label_text_color="*neutral_600",
        block_label_text_color_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_hover_dark="*primary_800",
        button_primary_text_color="white",
        button_secondary_background_fill="white",
        button_secondary_background_fill_dark="*neutral_800",
        button_secondary_border_color="*neutral_300",
        button_secondary_border_color_dark="*neutral_600",
        button_border_width="1px",
        button_large_text_size="*text_md",
        button_large_text_weight="500",
        button_large_padding="*spacing_md calc(2 * *spacing_md)",
        link_text_color="*primary_700",
        link_text_color_dark="*primary_300",
        link_text_color_visited="*primary_700",
        link_text_color_visited_dark="*primary_300",
        link_text_color_active="*primary_800",
        link_text_color_active_dark="*primary_200",
        link_text_color_hover="*primary_800",
        link_text_color_hover_dark="*primary_200",
        input_background_fill="white",
        input_border_width="1px",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_600",
        block_title_text_color="*neutral_700",
        block_title_text_color_dark="*neutral_200",
        input_placeholder_color="*neutral_500",
        slider_color="*primary_700",
        slider_color_dark="*primary_500",
        checkbox_background_color_selected="*primary_700",
        checkbox_border_color_selected="*primary_700",
        checkbox_label_background_fill_selected="*primary_50",
        checkbox_label_background_fill_selected_dark="*primary_900",
        checkbox_label_border_color_selected="*primary_700",
        checkbox_label_text_color_selected="*primary_900",
        checkbox_label_text_color_selected_dark="*primary_50",
    )


CSS = Path(__file__).with_name("page.css").read_text("utf-8")

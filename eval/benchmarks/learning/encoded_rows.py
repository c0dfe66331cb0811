"""Rows of a data set as tensors, tokenized and preprocessed once: prompts with their images, and the right answers."""

from typing import Any

import datasets
import numpy as np
import torch


class EncodedRows:
    """N prompts and answers as a `FastPolicy` reads them, about 90 kB a row with an image of 56 x 56.

    Attributes:
        answers: N strings.
        has_images: (N,) bool.
        lengths: (N,) tokens of each prompt.
        next_position: (N,) position of the first token after each prompt, in all three of time, height and width.
        targets: (N, W) token ids of `<answer>X</answer>`, 0 past their end.
        target_mask: (N, W) bool, True at those tokens.
    """

    def __init__(self, model: Any, processor: Any, rows: datasets.Dataset) -> None:
        self.answers: list[str] = list(rows["answer"])
        column = rows["images"] if "images" in rows.column_names else [None] * len(rows)
        images = [list(row or []) for row in column]
        self.has_images = np.array([bool(row) for row in images])

        texts = [
            processor.apply_chat_template(_messages(prompt, len(row)), add_generation_prompt=True, tokenize=False)
            for prompt, row in zip(rows["prompt"], images, strict=True)
        ]
        flat = [image for row in images for image in row]
        inputs = processor(
            text=texts, images=flat or None, padding=True, return_mm_token_type_ids=True, return_tensors="pt"
        )
        self._ids = inputs["input_ids"]  # (N, P)
        self._mask = inputs["attention_mask"].bool()  # (N, P)
        self.lengths = self._mask.sum(1)
        if flat:
            grids, pixels = inputs["image_grid_thw"], inputs["pixel_values"]  # (images, 3), (patches, values)
            self._positions, _ = model.model.get_rope_index(
                self._ids, inputs["mm_token_type_ids"], image_grid_thw=grids, attention_mask=inputs["attention_mask"]
            )  # (3, N, P)
        else:
            grids, pixels = torch.empty(0, 3, dtype=torch.long), torch.empty(0, 0)
            self._positions = (self._mask.cumsum(1) - 1).clamp(min=0).expand(3, -1, -1)
        self.next_position = self._positions.masked_fill(~self._mask, 0).amax((0, 2)) + 1
        self._grids = grids.split([len(row) for row in images])  # N times (images of the row, 3)
        self._pixels = pixels.split([int(grid.prod(1).sum()) for grid in self._grids])  # N times (patches, values)

        targets = [processor.tokenizer(f"<answer>{answer}</answer>")["input_ids"] for answer in self.answers]
        width = max(map(len, targets))
        self.target_mask = torch.tensor([[at < len(ids) for at in range(width)] for ids in targets])
        self.targets = torch.tensor([ids + [0] * (width - len(ids)) for ids in targets])

    def prompts(self, model: Any, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return embeddings with image features (K, P, hidden), positions (3, K, P) and mask (K, P) bool of K rows.

        Padding is on the left; P is the longest prompt of these rows. The vision tower runs once an image.
        """
        first = self._ids.shape[1] - int(self.lengths[rows].max())
        ids, mask = self._ids[rows, first:], self._mask[rows, first:]
        embeds = model.model.language_model.embed_tokens(ids)
        if self.has_images[rows.numpy()].any():
            pixels = torch.cat([self._pixels[row] for row in rows.tolist() if self.has_images[row]])
            grids = torch.cat([self._grids[row] for row in rows.tolist()])
            features = model.model.visual(pixels, grid_thw=grids).pooler_output
            places = (ids == model.config.image_token_id).unsqueeze(-1)
            embeds = embeds.masked_scatter(places, features)
        return embeds, self._positions[:, rows, first:], mask


def _messages(prompt: list[dict[str, Any]], num_images: int) -> list[dict[str, Any]]:
    """Put the images in front of the text of the first user message, as TRL's `prepare_multimodal_messages` does."""
    messages = [dict(message) for message in prompt]
    if num_images:
        user = next(message for message in messages if message["role"] == "user")
        user["content"] = [{"type": "image"}] * num_images + [{"type": "text", "text": user["content"]}]
    return messages

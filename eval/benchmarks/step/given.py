"""Generation batches without an engine: completions and rewards are given, and alike for every trainer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import datasets
import numpy as np
import torch
from trl import GRPOTrainer

SPREAD = 0.6
"""Of the logarithm of a completion's length. With a median of a quarter of the most, 1 % are as long as that."""


def live_groups(rows: int, share: float) -> np.ndarray:
    """(rows,) bool: evenly spread groups, `rows * share` of them; a `ValueError` where that is no whole number."""
    live = round(rows * share)
    if not np.isclose(live, rows * share):
        raise ValueError(f"{share:g} of {rows} rows is no whole number of groups. Choose --rows so that it is.")
    return np.diff(np.arange(rows + 1) * live // rows) > 0


def lengths(rows: int, generations: int, most: int, seed: Any) -> np.ndarray:
    """(rows * generations,) lognormal numbers of tokens, at most `most`, with one in each quantile of a group.

    So groups cost about the same, whichever of them are trained on.
    """
    random = np.random.default_rng(seed)
    places = random.permuted(np.tile(np.arange(generations), (rows, 1)), axis=1)
    normal = torch.special.ndtri(torch.from_numpy((places + random.random(places.shape)) / generations)).numpy()
    return np.clip(np.rint(most / 4 * np.exp(SPREAD * normal)), 1, most).astype(int).ravel()


class Given:
    """Completions of at most `most` tokens and rewards of generation batches of one process.

    A `share` of the groups has a gradient. In each of these, every other completion is right.
    """

    def __init__(
        self, rows: int, generations: int, most: int, share: float, tokenizer: Any, *, all_longest: bool = False
    ):
        self.rows, self.generations, self.most, self.all_longest = rows, generations, most, all_longest
        right = np.arange(rows * generations) % 2 * np.repeat(live_groups(rows, share), generations)
        self._rewards = right.astype(float).tolist()
        special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
        self._tokens = np.setdiff1d(np.arange(len(tokenizer)), [*special])
        self._end, self._batch = tokenizer.eos_token_id, 0

    def completions(self) -> list[list[int]]:
        """Token ids of the next generation batch. A completion shorter than the most ends with the end token."""
        self._batch += 1
        random = np.random.default_rng(self._batch)
        size = self.rows * self.generations
        counts = [self.most] * size
        if not self.all_longest:
            counts = lengths(self.rows, self.generations, self.most, self._batch).tolist()
        ids = [random.choice(self._tokens, count).tolist() for count in counts]
        return [each if len(each) == self.most else [*each[:-1], self._end] for each in ids]

    def given_reward(self, completion_ids: list[list[int]], **columns: Any) -> list[float]:
        """The reward function: by a completion's place in the generation batch."""
        return self._rewards

    @contextmanager
    def in_place_of_generation(self) -> Iterator[None]:
        """Let trainers take these completions where TRL 1.16 asks its engine, and decode each image once.

        Stock's loader, which decodes it for every completion, would take most of the time.
        """
        decode, decoded = datasets.Image.decode_example, {}

        def generate(trainer: Any, prompt_ids: list, *others: Any, **named: Any) -> tuple[list[list[int]], None]:
            if len(prompt_ids) != self.rows * self.generations:
                raise RuntimeError(f"{len(prompt_ids)} prompts, and not {self.rows} x {self.generations}")
            return self.completions(), None

        def decode_once(feature: Any, value: dict[str, Any], *others: Any, **named: Any) -> Any:
            if value["bytes"] not in decoded:
                decoded[value["bytes"]] = decode(feature, value, *others, **named)
            return decoded[value["bytes"]]

        with (
            patch.object(GRPOTrainer, "_generate_single_turn", generate),
            patch.object(datasets.Image, "decode_example", decode_once),
        ):
            yield

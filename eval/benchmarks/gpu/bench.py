"""The model, the rows and the settings of the parts that train."""

from dataclasses import dataclass
from typing import Any

import torch

from ..step.__main__ import RECIPE
from ..step.given import Given
from ..step.live_shares import one_batch
from ..step.models import processor_and_config, random_model, random_rows
from ..step.one_run import trainer_settings
from .parts import MeasuredParts, reference_in_memory


@dataclass(frozen=True)
class Sizes:
    """Of the model and of the parts."""

    shape: str
    longest: int  # tokens of a completion whose memory is measured
    longest_timed: int  # of one whose update is timed
    image_tokens: int  # of a row
    image_tokens_of_shares: int  # of a row of the updates at live shares
    prompt_tokens: int  # of the prompts whose memory is measured
    chosen: int  # rows of a draw
    generations: int  # completions of a row whose update is timed
    repeats: int = 1  # of every part that is timed
    rows: int = 8  # of the generation batch whose update is timed
    micro_batch: int = 8  # completions of a pass whose update is timed


REAL = Sizes(
    "3b", 2048, 512, image_tokens=1024, image_tokens_of_shares=256, prompt_tokens=4096, chosen=512, generations=4
)
TINY = Sizes("small", 24, 24, image_tokens=16, image_tokens_of_shares=16, prompt_tokens=64, chosen=8, generations=2)
# The generation batch whose memory is measured. The recipe's micro-batch has 4 completions, too.
MEMORY = {"rows": 4, "generations": 4, "micro_batch": 4}
MEMORY_SHARE = 0.25  # of live groups; stock's memory does not depend on it


class Bench:
    """The parts that train. The decoder has so many `layers`, by default those of the published model."""

    def __init__(self, sizes: Sizes, layers: int | None = None):
        self.sizes = sizes
        self.processor, self.config = processor_and_config(sizes.shape)
        text = self.config.text_config
        self.layers = text.num_hidden_layers = layers or text.num_hidden_layers
        text.layer_types = text.layer_types[: self.layers]
        self.model = random_model(self.config, self.processor.tokenizer)
        self.parameters = sum(weight.numel() for weight in self.model.parameters())
        self.rows = random_rows(sizes.rows, sizes.image_tokens)
        self.rows_of_shares = random_rows(sizes.rows, sizes.image_tokens_of_shares)
        tokens = len(self.processor.tokenizer("the " * 100)["input_ids"]) / 100  # of a word
        filler = int((sizes.prompt_tokens - sizes.image_tokens) / tokens)
        self.long_rows = random_rows(MEMORY["rows"], sizes.image_tokens, filler)

    def settings(
        self, rows: int, generations: int, micro_batch: int, longest: int, updates: int, **changes: Any
    ) -> dict[str, Any]:
        """Return the settings of a trainer that gets the model."""
        options = {"rows": rows, "generations": generations, "micro_batch": micro_batch, "updates": updates}
        options |= {"engine": "given", "recipe": str(RECIPE), "completion_tokens": longest}
        options["settings"] = {"gradient_checkpointing": True, **changes}
        settings = trainer_settings(options, "")
        del settings["model_init_kwargs"]
        return settings

    def memory(self, name: str) -> dict[str, Any]:
        """Peaks of a generation batch, the second one of its run, and the parts of them."""
        parts, longest = MeasuredParts(), self.sizes.longest
        settings, shape = self.settings(**MEMORY, longest=longest, updates=2), (MEMORY["rows"], MEMORY["generations"])
        given = Given(*shape, longest, MEMORY_SHARE, self.processor.tokenizer, all_longest=True)
        more = {"warmup": 1, "counting": None if torch.cuda.is_available() else "memory", "watch_more": parts.watch}
        try:
            with reference_in_memory(self.model):
                batch = one_batch(name, given, self.model, self.long_rows, settings, self.processor, **more)
        finally:
            parts.leave()
        return {"trainer": name, "lengths": parts.lengths, "lines": parts.table(batch["memory"])}

    def update(self, repeat: int, share: float, name: str, of_shares: bool = False) -> dict[str, Any]:
        """Seconds of a generation batch of which `share` of the groups have a gradient."""
        sizes, rows = self.sizes, self.rows_of_shares if of_shares else self.rows
        shape, longest = (sizes.rows, sizes.generations), sizes.longest_timed
        settings = self.settings(*shape, sizes.micro_batch, longest, updates=1, beta=0.0)
        given = Given(*shape, longest, share, self.processor.tokenizer)
        batch = one_batch(name, given, self.model, rows, settings, self.processor)
        return {"repeat": repeat, "share": share, **batch}

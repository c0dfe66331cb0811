"""The model card of a run: TRL's card, which it writes at every save, with VADE's metadata and sections behind it."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from jinja2 import Environment, StrictUndefined

from trl_vade.files import packaged, save_whole

from .card_parts import END, START, code, markdown_table, one_line
from .posteriors.table import hub_link
from .uploading import branch_of, hub_id

TAGS = ("trl", "grpo", "vade", "trl-vade")
_QUICK_START = re.compile(r"^## Quick start$.*?(?=^## )", re.DOTALL | re.MULTILINE)


def complete_model_card(
    path: Path, facts: Mapping[str, Any], *, settings: Iterable[str], hub_model_id: str | None, **more: Any
) -> None:
    """Add metadata and sections to the card `path`, and replace the sections of an earlier call.

    `facts` are those of the run, with its `recipe`; `settings` are names of VADE's settings among them. Of `more`,
    `summary` has the figures of the run, `measured` lines of these, and `verdict` sentences; `curves` is a picture in
    the same folder; without `posterior_repo` the model's repository holds the posterior.
    """
    more = {"summary": None, "measured": (), "verdict": (), "vision": True, "adapter": False, "revision": None} | more
    card = ModelCard(path.read_text(encoding="utf-8"))
    data = card.data
    data.library_name = data.library_name or "transformers"
    data.pipeline_tag = "image-text-to-text" if more["vision"] else "text-generation"
    data.base_model = facts.get("base_model") or hub_id(data.base_model)  # the Hub refuses a local path
    data.datasets = [facts["dataset"]] if facts.get("dataset") else None
    data.tags = sorted({*(data.tags or []), *TAGS})  # TRL's tags come from a set, in another order in each process
    values = {name: facts.get(name.removeprefix("vade_")) for name in settings}
    values |= {name: facts.get(name) for name in ("num_generations", "temperature", "seed")} | facts["recipe"]
    recipe = [[code(name), one_line(value, 200)] for name, value in values.items() if value is not None]
    known = more | {
        **{"facts": facts, "hub_model_id": hub_model_id},
        "model": hub_model_id or "path/to/this/folder",
        "branch": branch_of(more["revision"]) if hub_model_id else None,
        "recipe": markdown_table(["setting", "value"], recipe),
        "measured": markdown_table(["measured in training", ""], more["measured"]),
        "dataset": hub_link(facts.get("dataset"), "datasets/"),
        "rewards": ", ".join(map(code, facts["rewards"])),
    }
    # A missing value is an error: a card with holes might not be noticed.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    templates = (packaged(f"model_cards/{name}.md").read_text(encoding="utf-8") for name in ("quick_start", "model"))
    quick_start, sections = (environment.from_string(text).render(known).strip() for text in templates)
    before, _, rest = card.text.partition(START)
    # TRL 1.16 asks a vision model without a picture, and calls a base model in a local folder None.
    before = _QUICK_START.sub(lambda _: f"{quick_start}\n\n", before, count=1)
    before = before.replace("[None](https://huggingface.co/None)", "a model in a local folder")
    card.text = f"{before.rstrip()}\n\n{START}\n\n{sections}\n\n{END}\n{rest.partition(END)[2].lstrip()}"
    save_whole(path, str(card).encode())

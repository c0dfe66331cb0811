"""The model card of a run: TRL's card, which TRL writes at every save, with VADE's metadata and sections behind it.

`model_cards/model.md` and `model_cards/quick_start.md` are the templates.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from huggingface_hub import ModelCard, ModelCardData
from jinja2 import Environment, StrictUndefined

from trl_vade.files import packaged, save_whole
from trl_vade.hub.cards import CARD_FILE, END, START, code, markdown_table, one_line
from trl_vade.hub.posteriors.table import hub_link
from trl_vade.hub.uploading import branch_of, hub_id
from trl_vade.selection.report.summary import measured_rows, summarise, verdict
from trl_vade.selection.report.writing import REPORT_FILE
from trl_vade.settings import settings_of

from ..grpo_config import VADEGRPOConfig
from ..report import live_run
from ..run_facts import card_facts

logger = get_logger(__name__)

TAGS = ("trl", "grpo", "vade", "trl-vade")
_QUICK_START = re.compile(r"^## Quick start$.*?(?=^## )", re.DOTALL | re.MULTILINE)


def write_model_card(trainer: Any, dataset: str | None = None) -> None:
    """Complete the card that TRL has written into the output directory; on the main process, at every save.

    It must end no run: after an error, which is logged, VADE's part is missing. `dataset` is as in `run_facts`.
    """
    try:
        folder, run = Path(trainer.args.output_dir), live_run(trainer)
        complete_model_card(
            folder / CARD_FILE,
            card_facts(trainer, dataset),
            curves=REPORT_FILE if run and (folder / REPORT_FILE).exists() else None,
            posterior_repo=trainer.publication.posterior_repo,
            hub_model_id=trainer.hub_model_id,
            summary=summarise(run) if run else None,
            vision=getattr(trainer.model.config, "vision_config", None) is not None,
            adapter=hasattr(trainer.model, "peft_config"),
            revision=trainer.publication.model.revision,
        )
    except Exception as error:
        logger.warning(f"The model card lacks VADE's sections ({type(error).__name__}: {error}).")


def complete_model_card(
    path: Path,
    facts: Mapping[str, Any],
    *,
    hub_model_id: str | None,
    summary: Mapping[str, Any] | None = None,
    vision: bool = True,
    adapter: bool = False,
    revision: str | None = None,
    **places: str | None,
) -> None:
    """Add metadata and sections to the card `path`, and replace the sections of an earlier call.

    `facts` are those of `card_facts`, `summary` is that of `summarise`. The `places` are `curves`, a picture in the
    same folder, and `posterior_repo`, without which the model's repository holds the posterior.
    """
    card = ModelCard(path.read_text(encoding="utf-8"))
    _complete_metadata(card.data, facts, vision=vision)
    values = {each.name: facts.get(each.name.removeprefix("vade_")) for each in settings_of(VADEGRPOConfig)}
    values |= {name: facts.get(name) for name in ("num_generations", "temperature", "seed")} | facts["recipe"]
    recipe = [[code(name), one_line(value, 200)] for name, value in values.items() if value is not None]
    known = {
        **{"facts": facts, "summary": summary, "vision": vision, "adapter": adapter, "hub_model_id": hub_model_id},
        "model": hub_model_id or "path/to/this/folder",
        "branch": branch_of(revision) if hub_model_id else None,
        "recipe": markdown_table(["setting", "value"], recipe),
        "measured": markdown_table(["measured in training", ""], measured_rows(summary)) if summary else "",
        "verdict": verdict(summary) if summary else [],
        "dataset": hub_link(facts.get("dataset"), "datasets/"),
        "rewards": ", ".join(map(code, facts["rewards"])),
    }
    # A missing value is an error: a card with holes might not be noticed.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    templates = (packaged(f"model_cards/{name}.md").read_text(encoding="utf-8") for name in ("quick_start", "model"))
    quick_start, sections = (environment.from_string(text).render(known, **places).strip() for text in templates)
    before, _, rest = card.text.partition(START)
    # TRL 1.16 asks a vision model without a picture, and calls a base model in a local folder None.
    before = _QUICK_START.sub(lambda _: f"{quick_start}\n\n", before, count=1)
    before = before.replace("[None](https://huggingface.co/None)", "a model in a local folder")
    card.text = f"{before.rstrip()}\n\n{START}\n\n{sections}\n\n{END}\n{rest.partition(END)[2].lstrip()}"
    save_whole(path, str(card).encode())


def _complete_metadata(data: ModelCardData, facts: Mapping[str, Any], *, vision: bool) -> None:
    """Add facts to the metadata of TRL's card, in place, and remove values that the Hub refuses; idempotent."""
    if data.get("licence") == "license":  # TRL 1.16 writes it into every card; the Hub's key is `license`
        data.pop("licence")
    data.library_name = data.library_name or "transformers"
    data.pipeline_tag = "image-text-to-text" if vision else "text-generation"
    data.base_model = facts.get("base_model") or hub_id(data.base_model)
    data.datasets = [facts["dataset"]] if facts.get("dataset") else None
    data.tags = sorted({*(data.tags or []), *TAGS})  # TRL's tags come from a set, in another order in each process

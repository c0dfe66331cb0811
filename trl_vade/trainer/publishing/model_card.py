"""The model card of a run: TRL's, kept whole, and after it what VADE has to say.

TRL writes its card anew at every save. `write_model_card` then adds metadata and sections: how prompts were chosen,
the recipe, the data, what was measured, where the posterior is, how to use the model and how to go on training it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from huggingface_hub import ModelCard
from jinja2 import Environment, StrictUndefined

from trl_vade.files import packaged, save_whole
from trl_vade.hub.card_metadata import CARD_FILE, END, START, complete_metadata
from trl_vade.hub.posteriors.facts import initial_posterior_kind
from trl_vade.hub.uploading import branch_of
from trl_vade.selection.report.record import Run
from trl_vade.selection.report.summary import summarise
from trl_vade.selection.signal import SPREAD

from .run_facts import RunFacts

logger = get_logger(__name__)

CURVES_FILE = "vade_training.png"

_SETTINGS = (
    *("sampler", "preset", "information_gain", "decay_sampled", "decay_unsampled", "signal_aware_decay", "cooldown"),
    *("prior", "strata", "stratify_by", "uniform_share", "sampler_kwargs", "posterior_init", "warm_start_discount"),
    *("dynamic_sampling", "max_prompt_length"),
)
"""Facts that are fields `vade_<name>` of the configuration."""


def write_model_card(
    folder: Path,
    look: Callable[[], tuple[RunFacts, Run | None]],
    *,
    posterior_repo: str | None = None,
    revision: str | None = None,
    draw: bool = True,
) -> None:
    """Complete the card that TRL has just written into `folder`; on the main process only.

    It runs at every save and must not end a run: whatever goes wrong is logged, and the card is written without that
    part, or stays as TRL wrote it.

    Args:
        folder: the output directory.
        look: what there is to say of the run, which may raise; see `run_facts`.
        posterior_repo, revision: see `complete_model_card`.
        draw: whether to draw the training curves, which takes most of the time (half a second or more).
    """
    try:
        facts, run = look()
        curves = _draw_curves(run, folder) if run and draw else None
        summary = summarise(run) if run else None
        complete_model_card(
            folder / CARD_FILE,
            facts.values,
            curves=curves,
            posterior_repo=posterior_repo,
            hub_model_id=facts.hub_model_id,
            summary=summary,
            vision=facts.vision,
            adapter=facts.adapter,
            revision=revision,
        )
    except Exception as error:  # of whatever kind: a run is worth more than its card
        logger.warning(f"The model card is without the part on VADE ({type(error).__name__}: {error}).")


def complete_model_card(
    path: str | os.PathLike[str],
    facts: Mapping[str, Any],
    *,
    curves: str | None,
    posterior_repo: str | None,
    hub_model_id: str | None,
    results: Sequence[Mapping[str, Any]] | None = None,
    summary: Mapping[str, Any] | None = None,
    vision: bool = True,
    adapter: bool = False,
    revision: str | None = None,
) -> None:
    """Add metadata and sections to the card `path`, whose own text stays; sections of an earlier call are replaced.

    Args:
        path: a README.md, as TRL or an earlier call wrote it.
        facts: the values of `RunFacts`.
        curves: file name of the picture of the training curves in the same folder; None: there is none.
        posterior_repo: Hub id of the data-set repository with the posterior; None: it is in the model's own.
        hub_model_id: of the model's repository; None: it has none.
        results: of benchmarks, each with `benchmark`, `metric`, `value`, `stderr` and `runs`, and the `dataset` (its
            id on the Hub), `config` and `split` where they are known; all but the first three may be None. None or
            empty: "Not evaluated yet."
        summary: what was measured in training, from `summary.summarise`.
        vision: whether the model takes pictures.
        adapter: whether what is saved is a PEFT adapter of the base model.
        revision: the branch of the model's repository; None is main. The posterior's own repository is always on main.

    Raises:
        OSError: the card cannot be read or written; it is as it was.
        ValueError: its metadata are no YAML mapping.
    """
    path, results = Path(path), list(results or [])
    card = ModelCard(path.read_text(encoding="utf-8"))
    complete_metadata(card.data, facts, results, vision=vision, name=hub_model_id or path.absolute().parent.name)
    branch = branch_of(revision) if hub_model_id else None
    shown = {"curves": curves, "posterior_repo": posterior_repo, "vision": vision, "adapter": adapter}
    card.text = _with_sections(card.text, _render(facts, summary, results, hub_model_id, branch=branch, **shown))
    save_whole(path, str(card).encode())


def _draw_curves(run: Run, folder: Path) -> str | None:
    """Draw the training curves and return the name of their file, or None where that cannot be done."""
    unfinished = folder / f"_{CURVES_FILE}"  # transformers pushes nothing that begins with an underscore
    try:
        from trl_vade.selection.report.picture import draw_report

        draw_report(run, unfinished, None)
        unfinished.replace(folder / CURVES_FILE)
    except ModuleNotFoundError:  # matplotlib is an extra
        return None
    except Exception as error:  # of whatever kind, from as far as matplotlib
        unfinished.unlink(missing_ok=True)
        logger.warning(f"The model card is without the training curves ({type(error).__name__}: {error}).")
        return None
    return CURVES_FILE


def _with_sections(text: str, sections: str) -> str:
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    return f"{before.rstrip()}\n\n{START}\n\n{sections.strip()}\n\n{END}\n{after.lstrip()}"


def _render(
    facts: Mapping[str, Any],
    summary: Mapping[str, Any] | None,
    results: list[Mapping[str, Any]],
    hub_model_id: str | None,
    **named: Any,
) -> str:
    """The sections; `named` goes to the template as it is."""
    # A name that the template asks for and nobody gives is an error; a card with holes would go unnoticed.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(packaged("model_cards/model.md").read_text(encoding="utf-8")).render(
        facts=facts,
        recipe=_recipe(facts),
        data=_data(facts),
        measured=_measured(summary, facts) if summary else [],
        validated=bool(summary and summary["validation"]),
        posterior="generation_batches" in facts,
        warm=initial_posterior_kind(dict(facts))["warm"],
        results=[[_cell(line.get(column)) for column in _COLUMNS] for line in results],
        rewards=_names(facts["rewards"]),
        hub_model_id=hub_model_id,
        model=hub_model_id or "path/to/this/folder",
        **named,
    )


_COLUMNS = ("benchmark", "metric", "value", "stderr", "runs")


def _recipe(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings and their values; what is not set, or does not reach this run, is left out."""
    values = {f"vade_{name}": facts.get(name) for name in _SETTINGS}
    values |= {name: facts.get(name) for name in ("num_generations", "temperature")} | facts["recipe"]
    values |= {"seed": facts.get("seed"), "vllm_mode": values["vllm_mode"] if values.get("use_vllm") else None}
    return [(f"`{name}`", _cell(value)) for name, value in values.items() if value is not None]


def _data(facts: Mapping[str, Any]) -> list[str]:
    dataset, revision, threshold = facts.get("dataset"), facts.get("dataset_revision"), facts.get("success_threshold")
    address = f"https://huggingface.co/datasets/{dataset}"
    at = f", at commit [`{revision[:8]}`]({address}/tree/{revision})" if revision else ""
    lines = [f"Data set: [{dataset}]({address}){at}" if dataset else "Data set: none on the Hub that is known"]
    if facts.get("num_samples"):
        lines.append(f"Training rows: {facts['num_samples']:,} (fingerprint `{facts['dataset_fingerprint'][:12]}`)")
    lines.append(f"Rewards: {_names(facts['rewards'])}")
    name = f"`{facts['success_reward']}`" if facts.get("success_reward") else "the total reward"
    if threshold == SPREAD:
        lines.append(f"Signal: the spread of {name}, the share of pairs of a group's completions in which it differs")
    elif facts.get("success_reward"):
        right = f"an answer is right when {name} is at least {threshold:g}" if threshold is not None else None
        lines.append(f"Success: {right or f'the value of {name}, from 0 to 1, is a fraction of a success'}")
    return lines


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{_cell(name)}`" for name in names)


def _measured(summary: Mapping[str, Any], facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `summary.summarise` counts, for a table; the card of the posterior counts its steps, which are more."""
    steps, batches = facts.get("generation_batches"), summary["generation_batches"]
    more = steps is not None and steps != batches
    validation = summary["validation"]
    scores = list(zip(("first", "last"), (validation[:1] + validation[1:][-1:]), strict=False))
    ratios = {part: summary[f"effective_gradient_ratio_{part}_quarter"] for part in ("first", "last")}
    return [
        ("optimiser steps", f"{summary['steps']:,}"),
        ("generation batches", f"{batches:,}"),
        *([("refills", f"{summary['refills']:,}")] if summary["refills"] else []),
        *([("steps of the posterior (all of these, and a warm start)", f"{steps:,}")] if more else []),
        ("rollouts", f"{summary['rollouts']:,}"),
        *((f"effective gradient ratio, {part} quarter", _percent(value)) for part, value in ratios.items()),
        *((f"validation score, {name} (step {at['step']})", _percent(at["score"])) for name, at in scores),
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _cell(value: Any) -> str:
    """A value in a table of Markdown."""
    if value is None:
        return "-"
    if isinstance(value, dict | list):
        value = json.dumps(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", "\\|")

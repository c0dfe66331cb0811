"""What a posterior tells, for its card and the terminal: the facts of its run, some rows, and a histogram.

A stranger may have written the facts. They have the names of `PosteriorTable.metadata`; unknown ones are left out.
"""

from typing import Any

import numpy as np

from trl_vade.checks import IntArray

from ..cards import code
from ..uploading import hub_id, is_hub_id
from .table import PosteriorTable

HUB = "https://huggingface.co"
EDGES = np.arange(11) / 10  # linspace would give 0.30000000000000004, above a rate of 0.3
FACTS = (
    *("base_model", "model_repo", "dataset", "dataset_revision", "sampler", "preset", "success_reward"),
    *("success_threshold", "num_generations", "temperature", "posterior_init", "warm_start_discount"),
    *("decay_sampled", "decay_unsampled", "signal_aware_decay"),
    *("global_step", "generation_batches", "rollouts", "seed", "package_version"),
)


def known_facts(table: PosteriorTable) -> dict[str, Any]:
    """Return the facts that people want to see, by name."""
    return {name: value for name in FACTS if (value := table.metadata.get(name)) is not None}


def fact_rows(table: PosteriorTable) -> list[list[str]]:
    """Return [name, value] of each known fact, in Markdown. Most signs of a value: an id of the Hub with a commit."""
    places = {"base_model": "", "model_repo": "", "dataset": "datasets/"}
    return [
        [f"`{name}`", (name in places and hub_link(value, places[name])) or code(value, 140)]
        for name, value in known_facts(table).items()
    ]


def named_dataset(name: Any) -> dict[str, str | None]:
    """Return the facts `dataset` and `dataset_revision` of "user/name@revision"; None for a folder, or without one."""
    repo_id, _, revision = str(name or "").partition("@")
    found = hub_id(repo_id) if "/" in repo_id else None
    return {"dataset": found, "dataset_revision": revision or None if found else None}


def hub_link(name: Any, place: str = "") -> str:
    """Return a link to a model or, in the `place` "datasets/", to a data set; empty if the Hub cannot have it."""
    known = is_hub_id(name) and (not place or "/" in name)  # every data set has an owner
    return f"[{name}]({HUB}/{place}{name})" if known else ""


def sample_rows(table: PosteriorTable) -> list[list[str]]:
    """Return the name, pass rate, counts and visits of the 3 hardest and the 3 easiest rows."""
    order, rates, counts = table.pass_rate.argsort(kind="stable").tolist(), table.pass_rate, table.alpha + table.beta
    return [
        [code(table.sample_id[row]), f"{rates[row]:.3f}", f"{counts[row]:.1f}", f"{table.visits[row]:,}"]
        for row in [*order[:3], *order[3:][-3:]]
    ]


def bin_counts(pass_rate: Any) -> IntArray:
    """Return the number of pass rates in [0, 0.1), [0.1, 0.2), ... [0.9, 1], (10,)."""
    return np.histogram(pass_rate, bins=EDGES)[0].astype(np.int64)


def text_histogram(table: PosteriorTable) -> str:
    """Return a line for each bin, of at most 80 characters: its name, its number of rows, and a bar if it has any."""
    counts = bin_counts(table.pass_rate).tolist()
    most = max(*counts, 1)
    bins = zip(EDGES[:-1], EDGES[1:], counts, strict=True)
    lines = (f"{low:.1f} to {high:.1f}  {n:>{len(f'{most:,}')},}  {'#' * -(-50 * n // most)}" for low, high, n in bins)
    return "\n".join(map(str.rstrip, lines))

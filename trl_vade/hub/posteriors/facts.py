"""What a posterior tells, for its card and the terminal: the facts of its run, some rows, and a histogram.

The facts are rows of text in Markdown. A stranger may have written them. An unknown fact has no row.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.checks import IntArray

from ..cards import MOST_SIGNS, one_line
from ..uploading import hub_id, is_hub_id
from .table import PosteriorTable

POSTERIOR_INITS = ("prior", "rollout")  # any other value is a source, see `warm_start_source`
HUB = "https://huggingface.co"
EDGES = np.arange(11) / 10  # linspace would give 0.30000000000000004, above a rate of 0.3
_SAMPLER = {
    **{"sampler": "", "preset": "preset", "information_gain": "information gain", "prior": "prior"},
    **{"stratify_by": "even shares by"},
}


def fact_rows(table: PosteriorTable) -> list[list[str]]:
    """Return [name, value] of each known fact in the table's metadata, in Markdown."""
    facts, size = table.metadata, len(table)
    total, source, warm = facts["num_samples"], str(facts.get("posterior_init")), initial_posterior_kind(facts)["warm"]
    by = ", in this run or in the posterior that it started from" if warm else ""
    start = code(source, most=200) if "/" in source and is_hub_id(source.partition("@")[0]) else "a local posterior"
    number = {name: _number(value) for name, value in facts.items()}
    mixed = " with right and wrong answers" if facts.get("signal_aware_decay") is True else ""
    if share := number.get("warm_start_discount"):
        start += f", with a share of {share} of its counts"
    rows = {
        "base model": _link(facts.get("base_model")),
        "trained model": _link(facts.get("model_repo")),
        "data set": dataset_link(facts),
        "rows in this table": f"{size:,} of {total:,} ({size / total:.1%}), scored at least once{by}; the other "
        f"{total - size:,} were never seen",
        "started from": start if warm else "",
        "success": success_of(facts),
        "completions of a row (G)": number.get("num_generations"),
        "sampling temperature": number.get("temperature"),
        "sampler": ", ".join(filter(None, (code(facts.get(name), word) for name, word in _SAMPLER.items()))),
        "counts kept in a batch": f"{number['decay_sampled']} of a chosen row{mixed}, "
        f"{number['decay_unsampled']} of any other",
        "saved at": f"optimiser step {number['global_step']}, step {number['generation_batches']} of the posterior",
        "rollouts until then": number.get("rollouts"),
        "seed": code(facts.get("seed")),
        "made with": code(facts.get("package_version"), "trl_vade"),
    }
    return [[name, value] for name, value in rows.items() if value]


def initial_posterior_kind(facts: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the run is known to have started with another posterior (`warm`), or without one (`alone`)."""
    start = facts.get("posterior_init")
    return {"warm": bool(start) and start not in POSTERIOR_INITS, "alone": start == "prior"}


def named_dataset(name: Any) -> dict[str, str | None]:
    """Return the facts `dataset` and `dataset_revision` of "user/name@revision"; None for a folder, or without one."""
    repo_id, _, revision = str(name or "").partition("@")
    found = hub_id(repo_id) if "/" in repo_id else None
    return {"dataset": found, "dataset_revision": revision or None if found else None}


def dataset_link(facts: Mapping[str, Any]) -> str:
    """Return a link to the data set of the run and to its commit; empty if it is not on the Hub."""
    name, revision = facts.get("dataset"), facts.get("dataset_revision")
    if not is_hub_id(name) or "/" not in name:  # the Hub has no data set without an owner
        return ""
    at = f" at [`{revision}`]({HUB}/datasets/{name}/tree/{revision})" if is_hub_id(revision) else ""
    return f"[{name}]({HUB}/datasets/{name}){at}"


def success_of(facts: Mapping[str, Any]) -> str:
    """Return when an answer counts as right; empty if it is not known."""
    reward, threshold = code(facts.get("success_reward")), _number(facts.get("success_threshold"))
    if facts.get("success_threshold") == "spread":
        return f"none: the pass rate is the spread of {reward or 'the total reward'}, the share of pairs that differ"
    if reward and threshold:
        return f"{reward} of at least {threshold}"
    return reward and f"{reward}, from 0 to 1, as a fraction of a success"


def code(value: Any, before: str = "", most: int = MOST_SIGNS) -> str:
    """Return `value` as code on one line, or nothing. The name of a reward may hold any characters."""
    text = "" if value is None else one_line(value, most).replace("`", "'")
    return f"{before} `{text}`".strip() if text else ""


def sample_rows(table: PosteriorTable) -> tuple[list[str], list[list[str]]]:
    """Return a head, and the name, task, pass rate, counts and visits of the 3 hardest and the 3 easiest rows."""
    order, rates, counts = table.pass_rate.argsort(kind="stable").tolist(), table.pass_rate, table.alpha + table.beta
    task = [[code(name)] for name in table.task] if table.task else [[]] * len(table)
    rows = [
        [code(table.sample_id[row]), *task[row], f"{rates[row]:.3f}", f"{counts[row]:.1f}", f"{table.visits[row]:,}"]
        for row in [*order[:3], *order[3:][-3:]]
    ]
    return ["row", *(["task"] if table.task else []), "pass rate", "counts", "visits"], rows


def bin_counts(pass_rate: Any) -> IntArray:
    """Return the number of pass rates in [0, 0.1), [0.1, 0.2), ... [0.9, 1], (10,)."""
    return np.histogram(pass_rate, bins=EDGES)[0].astype(np.int64)


def text_histogram(table: PosteriorTable) -> str:
    """Return a line for each bin, of at most 80 characters: its name, its number of rows, and a bar if it has any."""
    counts = bin_counts(table.pass_rate)
    digits = max(len(f"{count:,}") for count in counts)
    bars = np.ceil(counts * ((66 - digits) / max(counts.max(), 1)) - 1e-9).astype(int)
    bins = zip(EDGES[:-1], EDGES[1:], counts, bars, strict=True)
    lines = (f"{low:.1f} to {high:.1f}  {count:>{digits},}  {'#' * bar}" for low, high, count, bar in bins)
    return "\n".join(map(str.rstrip, lines))


def _link(name: Any) -> str:
    return f"[{name}]({HUB}/{name})" if is_hub_id(name) else ""


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return one_line(f"{value:,}" if isinstance(value, int) else f"{value:g}")

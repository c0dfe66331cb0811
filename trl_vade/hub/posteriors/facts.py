"""What a posterior tells, for its card and the terminal: the facts of its run, some rows, and a histogram.

The facts are rows of text in Markdown. An unknown fact has no row.
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

NUM_BINS = 10
EDGES = np.arange(NUM_BINS + 1) / NUM_BINS  # linspace would give 0.30000000000000004, above a rate of 0.3


def fact_rows(table: PosteriorTable) -> list[list[str]]:
    """Return [name, value] of each fact in the table's metadata, in Markdown."""
    facts, size = table.metadata, len(table)
    total, source = facts.get("num_samples"), str(facts.get("posterior_init"))
    share, unseen = (
        (f" of {total:,} ({size / total:.1%})", f"; the other {total - size:,} were never seen") if total else ("", "")
    )
    warm = initial_posterior_kind(facts)["warm"]
    by = ", in this run or in the posterior that it started from" if warm else ""
    start = code(source, most=200) if "/" in source and is_hub_id(source.partition("@")[0]) else "a local posterior"
    discount, step, batch = (
        _number(facts.get(name)) for name in ("warm_start_discount", "global_step", "generation_batches")
    )
    rows = {
        "base model": _model(facts.get("base_model")),
        "trained model": _model(facts.get("model_repo")),
        "data set": dataset_link(facts),
        "rows in this table": f"{size:,}{share}, scored at least once{by}{unseen}",
        "started from": start + (f", with a share of {discount} of its counts" if discount else "") if warm else "",
        "success": success_of(facts),
        "completions of a row (G)": _number(facts.get("num_generations")),
        "sampling temperature": _number(facts.get("temperature")),
        "sampler": _sampler(facts),
        "decay": _decay(facts),
        "saved at": f"optimiser step {step}" + (f", step {batch} of the posterior" if batch else "") if step else "",
        "rollouts until then": _number(facts.get("rollouts")),
        "seed": _number(facts.get("seed"), separator=""),
        "made with": code(facts.get("package_version"), "trl_vade"),
    }
    return [[name, value] for name, value in rows.items() if value]


def initial_posterior_kind(facts: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the run is known to have started with another posterior (`warm`), or without one (`alone`)."""
    start = facts.get("posterior_init")
    return {"warm": bool(start) and start not in POSTERIOR_INITS, "alone": start == "prior"}


def named_dataset(name: Any) -> dict[str, str | None]:
    """Return the facts `dataset` and `dataset_revision` of a data set that a user calls "user/name@revision".

    They are None for what is no id of the Hub, such as a folder, and for a revision that was not given.
    """
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


def _model(name: Any) -> str:
    return f"[{name}]({HUB}/{name})" if is_hub_id(name) else ""


def _sampler(facts: dict[str, Any]) -> str:
    before = {"sampler": "", "preset": "preset", "information_gain": "information gain", "prior": "prior"}
    parts = [code(facts.get(name), word) for name, word in before.items()]
    cooldown = _number(facts.get("cooldown"))
    parts += [f"cooldown of {cooldown} epochs" if cooldown not in ("", "0") else ""]
    parts += ["longer where even draws teach" if facts.get("even_rest") is True else ""]
    return ", ".join(filter(None, [*parts, code(facts.get("stratify_by"), "even shares by")]))


def _decay(facts: dict[str, Any]) -> str:
    chosen, other = _number(facts.get("decay_sampled")), _number(facts.get("decay_unsampled"))
    if not chosen or not other:
        return ""
    who = "a chosen row with right and wrong answers" if facts.get("signal_aware_decay") is True else "a chosen row"
    return f"in a generation batch {who} keeps {chosen} of its counts (lambda_1), any other {other} (lambda_2)"


def _number(value: Any, separator: str = ",") -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f"{value:{separator}}" if isinstance(value, int) else f"{value:g}"


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
    counts, _ = np.histogram(pass_rate, bins=EDGES)
    return counts.astype(np.int64)


def text_histogram(table: PosteriorTable) -> str:
    """Return a line for each bin, of at most 80 characters: its name, its number of rows, and a bar if it has any."""
    counts = bin_counts(table.pass_rate)
    digits = max(len(f"{count:,}") for count in counts)
    bars = np.ceil(counts * ((66 - digits) / max(counts.max(), 1)) - 1e-9).astype(int)
    bins = zip(EDGES[:-1], EDGES[1:], counts, bars, strict=True)
    lines = (f"{low:.1f} to {high:.1f}  {count:>{digits},}  {'#' * bar}" for low, high, count, bar in bins)
    return "\n".join(map(str.rstrip, lines))

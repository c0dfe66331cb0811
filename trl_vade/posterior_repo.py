"""Posteriors as a data-set repository on the Hub, or as a local folder of the same layout.

    README.md                      the card; its `configs` are `latest` (the default) and one for each step
    step-000100/posterior.parquet  the table of optimiser step 100; see `posterior_table`
    pass_rates.png                 histogram of the newest one, where matplotlib is installed

A tag `step-000100` is at the commit that added the step. So `load_dataset("you/repo")` reads the newest table,
`load_dataset("you/repo", "step-000100")` an earlier one, and the page of the repository shows both.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from .card_templates import markdown_table, template_path
from .errors import ConfigurationError
from .hub import HubTarget, commit_folder, ensure_repo
from .pass_rates import bin_counts, bin_names, draw_pass_rates
from .posterior_facts import fact_rows, size_category
from .posterior_table import PosteriorTable, is_hub_id, write_table

TABLE_FILE = "posterior.parquet"
PICTURE_FILE = "pass_rates.png"
CARD_FILE = "README.md"
LATEST = "latest"
"""Name of the configuration that is the newest step."""


def step_name(step: int) -> str:
    """Name of the folder, the configuration and the tag of an optimiser step: "step-000100"."""
    return f"step-{step:06d}"


def table_path(step: int) -> str:
    """Path of the table of an optimiser step in the repository."""
    return f"{step_name(step)}/{TABLE_FILE}"


def steps_in(files: Iterable[str]) -> list[int]:
    """Return, in ascending order, the steps whose tables are among `files`, paths in the repository."""
    there = set(files)
    found = (re.fullmatch(rf"step-([0-9]{{6,18}})/{re.escape(TABLE_FILE)}", file) for file in there)
    steps = {int(match[1]) for match in found if match}
    return sorted(step for step in steps if table_path(step) in there)  # a name of our own: no zeros in front beyond 6


def stage_posterior(folder: str | Path, table: PosteriorTable) -> None:
    """Write the table into `folder` as the repository has it, and the picture where matplotlib is installed.

    Raises:
        ConfigurationError: the table does not say of which optimiser step it is.
        OSError: the disk refused.
    """
    target = Path(folder) / table_path(_step(table))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_table(table, target)
    if find_spec("matplotlib"):
        draw_pass_rates(table, Path(folder) / PICTURE_FILE)


def publish_posterior(
    table: PosteriorTable, repo_id: str, *, revision: str | None = None, private: bool | None = None
) -> str:
    """Add the table to the data-set repository `repo_id`, which is created if need be; return the commit's address.

    Table, picture and card go in one commit, which gets the step's tag. The card lists the steps that are there. Where
    the step is there already, its table is replaced.

    Args:
        table: with a `global_step` in its metadata. Names and tasks of its rows can be read by all who can read the
            repository.
        repo_id: "user/name", or "name" for one of your own.
        revision: the branch; None is main.
        private: of a repository that is made.

    Raises:
        HubError: the Hub refuses, or cannot be reached.
        ConfigurationError: as in `stage_posterior`.
    """
    step = _step(table)
    with tempfile.TemporaryDirectory() as folder:
        stage_posterior(folder, table)
        picture = (Path(folder) / PICTURE_FILE).exists()
        target = ensure_repo(HubTarget(repo_id, "dataset", revision, private))

        def render(files: list[str]) -> dict[str, bytes]:
            card = render_posterior_card(table, steps_in(files), target.repo_id, picture=picture)
            return {CARD_FILE: card.encode()}

        message = f"Posterior of optimiser step {step}"
        return str(commit_folder(target, folder, message=message, render=render, tag=step_name(step)).commit_url)


def render_posterior_card(
    table: PosteriorTable, steps: Iterable[int], repo_id: str | None, *, picture: bool = True
) -> str:
    """Return the card, README.md, of a repository whose newest table is `table`.

    Args:
        table: what the card describes; `latest` names its step, whatever the numbers of the others.
        steps: those that are in the repository; that of `table` need not be among them.
        repo_id: for the lines that load it; None where it is not known yet.
        picture: whether `pass_rates.png` is of this table.

    Raises:
        ConfigurationError: the table does not say of which optimiser step it is.
    """
    step = _step(table)
    steps = sorted({*steps, step})
    data = DatasetCardData(
        pretty_name=f"VADE posterior{_of_model(table.metadata)}",
        tags=["trl-vade", "vade", "posterior", "grpo", "trl", "pass-rates"],
        size_categories=[size_category(len(table))],
        configs=_configs(table, steps),
    )
    counts = [[name, f"{count:,}"] for name, count in zip(bin_names(), bin_counts(table.pass_rate), strict=True)]
    card = DatasetCard.from_template(
        data,
        template_path=str(template_path("posterior.md")),
        repo_id=repo_id or "you/repo",
        step=step,
        step_name=step_name(step),
        of_model=_of_model(table.metadata),
        facts_table=markdown_table(["", ""], fact_rows(table)),
        counts_table=markdown_table(["pass rate", "rows"], counts),
        steps_table=markdown_table(["step", "file", ""], [_step_row(one, step) for one in reversed(steps)]),
        picture=picture,
        has_task=table.task is not None,
    )
    return str(card)


def _configs(table: PosteriorTable, steps: list[int]) -> list[dict[str, Any]]:
    step = _step(table)
    # datasets 5.2 caches a local folder under its last name and these entries, and not its files: without something
    # of their content here, `load_dataset` would give the rows of another folder of that name.
    digest = _digest(table)
    named = [(LATEST, step), *((step_name(one), one) for one in reversed(steps))]
    return [
        {
            "config_name": name,
            **({"default": True} if name == LATEST else {}),
            "description": digest,
            "data_files": [{"split": "train", "path": table_path(one)}],
        }
        for name, one in named
    ]


def _digest(table: PosteriorTable) -> str:
    digest = hashlib.sha256(json.dumps([table.sample_id, table.task]).encode())
    for numbers in (table.index, table.alpha, table.beta, table.visits, table.last_step):
        digest.update(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _step(table: PosteriorTable) -> int:
    step = table.metadata.get("global_step")
    if step is None:
        raise ConfigurationError(
            "The table's metadata has no global_step, by which its folder and its tag are named (a tool that wrote it "
            "anew has lost it). Take the original file, or the table that posterior_table makes of the checkpoint."
        )
    return int(step)


def _of_model(facts: dict[str, Any]) -> str:
    model = facts.get("base_model")
    return f" of {model}" if is_hub_id(model) else ""


def _step_row(step: int, newest: int) -> list[str]:
    return [f"{step:,}", f"`{table_path(step)}`", "this card" if step == newest else ""]

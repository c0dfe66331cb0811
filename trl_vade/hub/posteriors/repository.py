"""Posteriors as a data-set repository on the Hub, or as a local folder of the same layout.

    README.md                      the card; its `configs` are `latest` (the default) and one for each step
    step-000100/posterior.parquet  the table of optimiser step 100; see `posterior_table`

On the main branch, the tag `step-000100` marks the commit that added the step. `load_dataset("you/repo")` reads the
newest table, `load_dataset("you/repo", "step-000100")` an earlier one.
"""

import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from huggingface_hub import DatasetCard, DatasetCardData, hf_hub_download
from yaml import YAMLError

from trl_vade.errors import ConfigurationError, VADEError, abbreviated
from trl_vade.files import packaged

from ..cards import CARD_FILE, markdown_table
from ..commit import files_in
from ..uploading import HubTarget, branch_of, commit_folder, ensure_repo, is_hub_id
from .columns import digest_of_rows
from .facts import fact_rows, initial_posterior_kind, sample_rows, text_histogram
from .table import PosteriorTable, read_table, write_table

TABLE_FILE = "posterior.parquet"
LATEST = "latest"  # name of the configuration of the newest step


def step_name(step: int) -> str:
    """Return the name of the folder, configuration and tag of an optimiser step: "step-000100"."""
    return f"step-{step:06d}"


def table_path(step: int) -> str:
    """Return the path of the table of an optimiser step in the repository."""
    return f"{step_name(step)}/{TABLE_FILE}"


def steps_in(files: Iterable[str]) -> list[int]:
    """Return, in ascending order, the steps whose tables are among the paths `files`."""
    found = (re.fullmatch(rf"step-([0-9]{{6,18}})/{re.escape(TABLE_FILE)}", file) for file in files)
    return sorted({step for match in found if match and table_path(step := int(match[1])) == match[0]})


def newest_step(files: Iterable[str], read: Callable[[str], str | Path]) -> int | None:
    """Return the step that the card calls `latest`, as `load_dataset` takes it; without such a card the last one.

    Args:
        files: the paths of the repository.
        read: returns the local path of one of them.
    """
    files = list(files)
    steps = steps_in(files)
    if CARD_FILE in files:
        with suppress(ValueError, TypeError, AttributeError, LookupError, YAMLError):  # not a card of ours
            configs = {one["config_name"]: one["data_files"] for one in DatasetCard.load(read(CARD_FILE)).data.configs}
            return steps[[*map(table_path, steps)].index(configs[LATEST][0]["path"])]
    return max(steps, default=None)


def stage_posterior(folder: str | Path, table: PosteriorTable) -> None:
    """Write the table into `folder`, in the layout of the repository."""
    target = Path(folder) / table_path(step_of(table))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_table(table, target)


def publish_posterior(table: PosteriorTable, target: HubTarget, *, force: bool = False) -> str:
    """Add the table and the card to a data-set repository in one commit, and return its address.

    The repository is created if it does not exist. On the main branch, the step's tag is set to the commit. Everybody
    who can read the repository can read the names and tasks of the rows.

    Raises:
        HubError: the Hub refuses or cannot be reached, or a table in the repository is damaged.
        ConfigurationError: the table has no rows, or its metadata have no optimiser step.
        VADEError: rows, tasks or facts of this step in the repository would be lost, and `force` is not set.
    """
    step = step_of(table)
    if not len(table):
        raise ConfigurationError("The posterior has no rows, as none was scored yet. Take a later checkpoint.")
    with tempfile.TemporaryDirectory() as folder:
        stage_posterior(folder, table)
        target = ensure_repo(target)

        def render(there: list[str]) -> dict[str, bytes | None]:
            if step in steps_in(there) and not force:
                _refuse_loss(table, _published(target, step), f"{target} has {step_name(step)}")
            return describe(Path(folder), target, there)

        message = f"Posterior of optimiser step {step}"
        tag = None if branch_of(target.revision) else step_name(step)
        return str(commit_folder(target, folder, message=message, render=render, tag=tag).commit_url)


def describe(folder: Path, target: HubTarget, there: list[str], newest: int | None = None) -> dict[str, bytes | None]:
    """Return the card of a repository that has the files `there` and gets those of `folder`, by its path.

    The card lists all steps. `latest` and its facts are of the step `newest`. None: of the sent one, or of the newest
    one of the repository if that is later.
    """
    sent = files_in(folder)
    steps = {*steps_in(there), *steps_in(sent)}
    if newest is None:
        before = newest_step(there, lambda path: hf_hub_download(filename=path, **target.where))
        newest = max(*steps_in(sent), -1 if before is None else before)
    step = newest
    path = table_path(step)
    table = read_table(sent[path]) if path in sent else _published(target, step)
    return {CARD_FILE: render_posterior_card(table, steps, target.repo_id, revision=target.revision).encode()}


def _published(target: HubTarget, step: int) -> PosteriorTable:
    table = read_table(hf_hub_download(filename=table_path(step), **target.where))
    return replace(table, metadata={**table.metadata, "global_step": step})  # another tool may have dropped the step


def _refuse_loss(table: PosteriorTable, there: PosteriorTable, what: str) -> None:
    """Raise if `table` lacks rows, tasks or facts of the table `there`. Numbers may differ."""
    names = set(there.sample_id) - set(table.sample_id)
    facts = [name for name, value in there.metadata.items() if value is not None and table.metadata.get(name) is None]
    lost = [f"{len(names)} of its {len(there)} rows by name (such as {abbreviated(min(names))})"] if names else []
    lost += ["the tasks"] if there.task is not None and table.task is None else []
    lost += [f"{len(facts)} facts ({', '.join(map(str, facts[:4]))}{', ...' * (len(facts) > 4)})"] if facts else []
    if lost:
        raise VADEError(
            f"{what} already. Replacing it would lose {', '.join(lost)}. A checkpoint names its rows by hashes; "
            "--dataset gives them the names of the data set. --force (force=True) replaces the table anyway."
        )


def render_posterior_card(
    table: PosteriorTable, steps: Iterable[int], repo_id: str, *, revision: str | None = None
) -> str:
    """Return the text of the card, README.md, of a repository whose newest table is `table`.

    `steps` are those in the repository, with or without that of `table`. Branches (`revision`) other than main have
    no tags.
    """
    step, facts = step_of(table), table.metadata
    model, dataset, sampler = (facts.get(name) for name in ("base_model", "dataset", "sampler"))
    of_model = f" of {model}" if is_hub_id(model) else ""
    paths = {one: table_path(one) for one in sorted({*steps, step}, reverse=True)}
    named = {LATEST: table_path(step)} | {step_name(one): path for one, path in paths.items()}
    # datasets 5.2 caches a local folder by its name and the configs, not by its files. Without a digest in these,
    # `load_dataset` could return the rows of another folder of the same name.
    digest = digest_of_rows(table)
    data = DatasetCardData(
        pretty_name=f"VADE posterior{of_model}",
        tags=["trl-vade", "vade", "posterior", "grpo", "trl", "pass-rates"],
        configs=[
            {"config_name": name}
            | ({"default": True} if name == LATEST else {})
            | {"description": digest, "data_files": [{"split": "train", "path": path}]}
            for name, path in named.items()
        ],
    )
    step_rows = [[f"{one:,}", f"`{path}`", "this card" if one == step else ""] for one, path in paths.items()]
    card = DatasetCard.from_template(
        data,
        template_path=str(packaged("model_cards/posterior.md")),
        repo_id=repo_id,
        step=step,
        step_name=step_name(step),
        branch=branch_of(revision),
        of_model=of_model,
        facts_table=markdown_table(["", ""], fact_rows(table)),
        histogram=text_histogram(table),
        rows_table=markdown_table(*sample_rows(table)),
        steps_table=markdown_table(["step", "file", ""], step_rows),
        has_task=table.task is not None,
        dataset=dataset if is_hub_id(dataset) else None,
        sampler=sampler
        if isinstance(sampler, str) and re.fullmatch(r"[\w.:]{1,200}", sampler)
        else None,  # any other one the card cannot describe
        **initial_posterior_kind(facts),
    )
    return str(card)


def step_of(table: PosteriorTable) -> int:
    """Return the optimiser step of the table, or raise `ConfigurationError` if it does not say one."""
    step = table.metadata.get("global_step")
    if step is None:
        raise ConfigurationError(
            "The table's metadata have no global_step, the step that names its folder and tag. Another tool may have "
            "dropped it. Take the original file, or make the table from the checkpoint with posterior_table. To copy "
            "it to a file of your choice, run `trl-vade posterior export`."
        )
    return int(step)

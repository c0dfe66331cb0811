"""A posterior with the names that its rows get from a data set."""

from pathlib import Path

from trl_vade.errors import ConfigurationError, SnapshotMismatchError, abbreviated
from trl_vade.hub.posteriors.facts import named_dataset
from trl_vade.hub.posteriors.table import PosteriorTable, posterior_table
from trl_vade.samplers.snapshot import load_snapshot

from ..data_sets import load_rows


def named_table(
    file: Path, name: str | None, config: str | None, split: str, task_column: str | None
) -> PosteriorTable:
    """Return the posterior in `file`, with the names and the tasks of its data set if `name` names one.

    `name` is "user/name" or "user/name@revision" on the Hub, or a folder. Without `task_column` the tasks are those of
    the column `task`, if there is one. A data set that does not have the rows of the posterior in their order is a
    `SnapshotMismatchError`.
    """
    from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
    from trl_vade.data.row_views import names_and_tasks

    snapshot = load_snapshot(file)
    if name is None:
        return posterior_table(snapshot)
    place, _, revision = (name, "", "") if Path(name).exists() else name.partition("@")
    dataset = load_rows("--dataset " + place, place, config, split, revision or None)
    if task_column is not None and task_column not in dataset.column_names:
        raise ConfigurationError(
            f"{name} has no column {abbreviated(task_column)}; it has {', '.join(dataset.column_names)}."
        )
    keys, _ = sample_keys(dataset)
    here, saved = dataset_fingerprint(keys), snapshot.metadata.get("dataset_fingerprint")
    if here != saved:
        raise SnapshotMismatchError(
            f"The split {split} of {name} ({len(dataset):,} rows) is not what the posterior is about: their rows have "
            f"the fingerprints {here[:12]}... and {str(saved)[:12]}..., so names would go to the wrong rows. Give the "
            "data set of that run, without the rows that vade_max_prompt_length dropped, or leave --dataset out."
        )
    facts = {fact: value for fact, value in named_dataset(name).items() if value is not None}
    visited = snapshot.sampler_state["posterior"]["sample_index"]
    return posterior_table(snapshot, facts=facts, **names_and_tasks(dataset, keys, visited, task_column or "task"))

"""The rows that a report shows: the hardest and the easiest of those that were chosen."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset

from trl_vade.checks import IntArray
from trl_vade.data.row_views import describe_row, key_text, row_labels
from trl_vade.samplers.posterior import BetaPosterior

from .record import SHOWN

MOST_STRATA = 100  # labels; more are names of rows, and no tasks
NAMED = 50  # rows at each end of the pass rates that have their id and question


def rows_of_report(
    dataset: Dataset, keys: IntArray, posterior: BetaPosterior, columns: Sequence[str], said: Mapping[int, str]
) -> dict[str, Any]:
    """Return the content of `vade_rows.json`.

    `columns` are those whose labels name the task of a row, and `said` has the last completion of rows.
    """
    seen, means = np.flatnonzero(posterior.visits > 0), posterior.posterior_mean
    # Ties are in the order of the keys as texts, as in `trl-vade posterior show`.
    order = seen[np.lexsort((keys[seen].view(np.uint64), means[seen]))].tolist()
    hardest, easiest = order[:NAMED], order[max(len(order) - NAMED, NAMED) :][::-1]
    shown = {*hardest[:SHOWN], *easiest[:SHOWN]}
    tasks: dict[str, list[int]] = {}
    labels = zip(*(row_labels(dataset, name, seen) for name in columns), strict=True)
    for row, each in zip(seen.tolist(), labels, strict=False):  # no labels without columns
        tasks.setdefault(" ".join(map(str, each)), []).append(row)
    tasks = tasks if len(tasks) <= MOST_STRATA else {}
    task_of = {row: {"task": name} for name, rows in tasks.items() for row in rows}
    return {
        **{"hardest": hardest, "easiest": easiest, "tasks": tasks},
        "rows": {
            str(row): {
                **{"key": key_text(int(keys[row])), "pass_rate": float(means[row])},
                **{"visits": int(posterior.visits[row]), **task_of.get(row, {})},
                **describe_row(dataset, row, picture=row in shown),
                **({"completion": said[row]} if row in said else {}),
            }
            for row in sorted({*hardest, *easiest})
        },
    }

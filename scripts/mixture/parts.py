"""Save the rows read from a source in one file, from which an interrupted build continues.

A part is a Parquet file of the rows chosen so far. A JSON record in its schema holds settings, counts, and the place
in the stream (`IterableDataset.state_dict`, which is exact for Parquet under datasets 5.2, see
tests/mixture/test_build.py). It is written whole or not at all. A continued stream reads its current file of the
source from the beginning again, and skips the rows that it had.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets.table import CastError
from tqdm.auto import tqdm

from trl_vade.errors import SourceSchemaError
from trl_vade.files import save_whole

from .overlap import EvaluationSets
from .rows import Choice, features
from .sources import Source, open_stream, state_of_mirror

FORMAT_VERSION = 1
"""Raised whenever the same source and settings would give other rows."""

SAVE_EVERY = 5000
"""Rows of a source between two saves of its part."""

_RECORD = b"trl_vade_mixture"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """The settings that decide the rows of a mixture, beside the content of the sources."""

    sources: tuple[Source, ...]
    seed: int = 0
    instruction: str | None = None  # see `rows.prompt_text`
    evaluation: EvaluationSets | None = None  # None: no comparison
    mirror: Path | None = None  # a folder with copies of the repositories; None: the Hub
    allow_fewer: bool = False  # continue if a source has fewer usable rows than its count
    save_every: int = SAVE_EVERY

    def settings(self, source: Source) -> dict[str, Any]:
        """Return the settings that the rows of `source` depend on, as JSON values."""
        return {
            "format": FORMAT_VERSION,
            "source": f"{source.place}, split {source.split}",
            "count": source.count,
            "seed": self.seed,
            "instruction": self.instruction,
            "evaluation": None if self.evaluation is None else self.evaluation.digest(),
            "mirror": state_of_mirror(source, self.mirror),
        }


def read_source(source: Source, recipe: Recipe, folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Read on where the part in `folder` ends, save it, and return the chosen rows, by their keys, and the record.

    Raises:
        ConfigurationError: the mirror lacks the repository.
        SourceSchemaError: the source lacks a column, or has another type in it.
    """
    path, settings = folder / f"{source.task}.parquet", recipe.settings(source)
    part = load_part(path, settings)
    if part is not None and part[1]["finished"]:
        logger.info("%s: read before, taken from %s", source.name, path)
        return part
    choice = Choice(source, seed=recipe.seed, instruction=recipe.instruction, evaluation=recipe.evaluation)
    stream = open_stream(source, recipe.mirror)
    if part is not None:
        choice.restore(part[0].to_pylist(), part[1])
        stream.load_state_dict(part[1]["stream"])
        logger.info("%s: continues after %d rows", source.name, choice.counts["read"])
    try:
        _read_all(stream, choice, lambda place: save_part(path, choice, settings, place), recipe.save_every)
    except CastError as error:
        raise SourceSchemaError(
            f"{source.name} ({source.place}): a file after the first has the columns {error.table_column_names}, and "
            f"the first has {error.requested_column_names}. Use the pinned revision, or list the other sources "
            "in --sources."
        ) from error
    except Exception as error:
        error.add_note(f"The source was {source.name} ({source.place}). The same command continues from {path}.")
        raise
    part = load_part(path, settings)
    assert part is not None
    return part


def save_part(path: Path, choice: Choice, settings: dict[str, Any], stream: dict[str, Any] | None) -> None:
    """Write the part to `path`; `stream` is the place in the stream, None at its end."""
    record = {"settings": settings, "finished": stream is None, "stream": stream, **choice.state()}
    if stream is None:
        record["seen"] = ""
    schema = features().arrow_schema
    table = pa.Table.from_pylist(choice.rows, schema=schema)
    text = json.dumps(record, sort_keys=True).encode()
    buffer = BytesIO()
    pq.write_table(table.replace_schema_metadata({**(schema.metadata or {}), _RECORD: text}), buffer)
    save_whole(path, buffer.getvalue())


def load_part(path: Path, settings: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]] | None:
    """Return rows and record of a part with these settings; for any other log the reason and return None."""
    if not path.exists():
        return None
    try:
        table = pq.read_table(path)
        record = json.loads(table.schema.metadata[_RECORD])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s cannot be read and is built again: %s", path, error)
        return None
    differences = [name for name in settings if record["settings"].get(name) != settings[name]]
    if differences:
        logger.info("%s has other settings (%s) and is built again", path, ", ".join(differences))
        return None
    return table, record


def _read_all(stream: Any, choice: Choice, save: Callable[[dict[str, Any] | None], None], save_every: int) -> None:
    """Read the rest of the stream; `save` its place every `save_every` rows, and None at its end."""
    with tqdm(initial=choice.counts["read"], desc=choice.source.name, unit=" rows", disable=None) as bar:
        for row in stream:
            choice.read(row)
            if choice.counts["read"] % save_every == 0:
                save(stream.state_dict())
            if choice.counts["read"] % 100 == 0:
                bar.set_postfix(usable=choice.counts["usable"], refresh=False)
            bar.update()
    save(None)

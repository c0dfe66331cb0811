"""What was read of a source so far, as one file: a build that was interrupted goes on from it.

A part is a Parquet file of the rows chosen so far, with a JSON record in its schema: settings, counts, and the place
in the stream (`IterableDataset.state_dict`, which is exact for Parquet under datasets 5.2, see
tests/mixture/test_build.py). It is written whole or not at all. A stream that goes on reads the source's file in which
it was once more from its beginning, and skips what it had.
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
"""Rows of a source after which its part is saved."""

_RECORD = b"trl_vade_mixture"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """What decides the rows of a mixture, but for what is in the sources."""

    sources: tuple[Source, ...]
    seed: int = 0
    instruction: str | None = None  # see `rows.prompt_text`
    evaluation: EvaluationSets | None = None  # None: nothing is compared
    mirror: Path | None = None  # a folder with copies of the repositories; None: the Hub
    allow_fewer: bool = False  # go on where a source has fewer usable rows than its count
    save_every: int = SAVE_EVERY

    def settings(self, source: Source) -> dict[str, Any]:
        """What the rows of `source` depend on, as JSON."""
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
    """The chosen rows of `source`, by their keys, and the record with its counts; from `folder` as far as it has them.

    Raises:
        ConfigurationError: the mirror lacks the repository.
        SourceSchemaError: the source is not what it was.
    """
    path, settings = folder / f"{source.task}.parquet", recipe.settings(source)
    part = load_part(path, settings)
    if part is not None and part[1]["finished"]:
        logger.info("%s: as read before, from %s", source.name, path)
        return part
    choice = Choice(source, seed=recipe.seed, instruction=recipe.instruction, evaluation=recipe.evaluation)
    stream = open_stream(source, recipe.mirror)
    if part is not None:
        choice.restore(part[0].to_pylist(), part[1])
        stream.load_state_dict(part[1]["stream"])
        logger.info("%s: goes on after %d rows", source.name, choice.counts["read"])
    try:
        _read_all(stream, choice, lambda place: save_part(path, choice, settings, place), recipe.save_every)
    except CastError as error:
        raise SourceSchemaError(
            f"{source.name} ({source.place}): a file after the first has the columns {error.table_column_names}, and "
            f"the first has {error.requested_column_names}. Use the pinned revision, or leave this source out by "
            "--sources."
        ) from error
    except Exception as error:
        error.add_note(f"This was {source.name} ({source.place}). Run the same command again: it goes on from {path}.")
        raise
    part = load_part(path, settings)
    assert part is not None
    return part


def save_part(path: Path, choice: Choice, settings: dict[str, Any], stream: dict[str, Any] | None) -> None:
    """Write the part; `stream` is the place in the stream, None where it was read to its end."""
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
    """Rows and record of a part with these settings; None, and a line in the log, for any other."""
    if not path.exists():
        return None
    try:
        table = pq.read_table(path)
        record = json.loads(table.schema.metadata[_RECORD])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s cannot be read and is made again: %s", path, error)
        return None
    differences = [name for name in settings if record["settings"].get(name) != settings[name]]
    if differences:
        logger.info("%s was made with other settings (%s) and is made again", path, ", ".join(differences))
        return None
    return table, record


def _read_all(stream: Any, choice: Choice, save: Callable[[dict[str, Any] | None], None], save_every: int) -> None:
    """Read the rest of the stream; `save` its place now and then, and None at its end."""
    with tqdm(initial=choice.counts["read"], desc=choice.source.name, unit=" rows", disable=None) as bar:
        for row in stream:
            choice.read(row)
            if choice.counts["read"] % save_every == 0:
                save(stream.state_dict())
            if choice.counts["read"] % 100 == 0:
                bar.set_postfix(usable=choice.counts["usable"], refresh=False)
            bar.update()
    save(None)

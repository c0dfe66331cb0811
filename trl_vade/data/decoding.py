"""The rows of a data set with their images decoded by a few threads, before they are needed where that can be known.

`Dataset.__getitems__` decodes one image after the other on the thread that trains, and of a list of images the first
one twice (datasets 5.2). Here a row is a task: it is read from Arrow, and each of its images goes once through the
`decode_example` of its feature. The rows are equal to those of `__getitems__`, to the pixel, and Pillow lets go of the
GIL while it decodes.
"""

import functools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import PIL.Image
from datasets import Dataset, Image, LargeList, List
from datasets.features import Json

from trl_vade.errors import ImageDecodeError

from .own_values import own_values
from .workers import RowWorkers, Workers, load_rows

Rows = list[dict[str, Any]]

THREADS = 4
"""Of one process. There may be eight processes on a node, and what they train with has its own threads."""


class RowDecoder:
    """
    Hands out rows by their numbers, each decoded once, and can begin with those of the next batch.

    A data set with a transform or a format of the user's, or with a kind of media beside images, is left to
    `__getitems__`, since a user's function need not be safe in threads: in worker processes where some are asked for,
    else on the thread that asks. Rows without either, and without images, are read on the thread that asks.

    There are threads only while there is something to decode: none idles, and none has to be closed. An error belongs
    to its row: it is raised where the row is loaded, and a row that is never loaded has none.

    Args:
        dataset: N rows.
        workers: the processes for rows that threads must not load.
    """

    def __init__(self, dataset: Dataset, workers: Workers | None = None):
        self.dataset = dataset
        self._begun: dict[int, Future[dict[str, Any]]] = {}
        self._workers = None
        slow = not self._is_plain or any(_decoders(dict(dataset.features)))
        if workers is not None and workers.number and slow and not self.in_threads:
            self._workers = RowWorkers(dataset, workers)

    @property
    def is_ahead(self) -> bool:
        """Whether rows can be begun before they are needed."""
        return self.in_threads or self._workers is not None

    @property
    def in_threads(self) -> bool:
        """Whether the threads decode this data set."""
        decoders = list(_decoders(dict(self.dataset.features)))
        images = [decoder for decoder in decoders if isinstance(decoder, Image)]
        return self._is_plain and bool(images) and all(isinstance(decoder, Image | Json) for decoder in decoders)

    @property
    def has_transform(self) -> bool:
        """Whether a function of the user's makes the rows, which may draw at random."""
        return bool(self.dataset.format["type"] == "custom")

    @property
    def _is_plain(self) -> bool:
        """Whether rows are handed out as they are, all columns and without a transform or a format."""
        format = self.dataset.format
        plain = format["type"] is None and not format["format_kwargs"]
        return plain and format["columns"] == self.dataset.column_names

    @functools.cached_property
    def _table(self) -> Dataset:
        """The data set in Arrow's format; made once, since it copies the list of the table's parts."""
        return self.dataset.with_format("arrow")

    def prefetch(self, rows: list[int], draw: int = 0) -> None:
        """Begin with `rows`, (K,) numbers, in place of those begun before, and return at once.

        Args:
            draw: the number of the draw; see `RowWorkers`.
        """
        if self._workers is not None:
            self._workers.begin(list(dict.fromkeys(rows)), draw)
        elif self.in_threads:
            self._begun = self._begin(rows)

    def load(self, rows: list[int], draw: int = 0) -> Rows:
        """Return the rows, equal to `dataset.__getitems__(rows)`; those that are ready or begun are not begun again.

        A row that is asked for several times is decoded once, and each time has its values to itself.

        Raises:
            ImageDecodeError: an image of theirs cannot be decoded.
        """
        decoded = self._decode(list(dict.fromkeys(rows)), draw)
        fresh = dict(decoded)
        return [fresh.pop(row) if row in fresh else self._again(row, decoded[row]) for row in rows]

    def _decode(self, rows: list[int], draw: int) -> dict[int, dict[str, Any]]:
        """The rows, all different, by their numbers."""
        if self._workers is not None:
            return dict(zip(rows, self._workers.load(rows, draw), strict=True))
        if not self.in_threads:
            return dict(zip(rows, load_rows(self.dataset, rows), strict=True))
        self._begun = self._begin(rows)
        try:
            return {row: self._begun[row].result() for row in rows}
        finally:
            self.forget()

    def _again(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        """`row` once more, with values of its own."""
        try:
            return own_values(row)
        except TypeError:
            return load_rows(self.dataset, [number])[0]

    def begin_epoch(self) -> None:
        """Start worker processes anew where they are not to persist."""
        if self._workers is not None:
            self._workers.begin_epoch()

    def forget(self) -> None:
        """Give up what was begun; return when no thread and no process is at it any more."""
        if self._workers is not None:
            self._workers.forget()
        wait([task for task in self._begun.values() if not task.cancel()])
        self._begun = {}

    def _begin(self, rows: list[int]) -> dict[int, "Future[dict[str, Any]]"]:
        for row in self._begun.keys() - set(rows):
            self._begun[row].cancel()
        # Pillow loads its formats when it first needs them, and without a lock: by its code (12.3) a thread that looks
        # meanwhile may miss its own. So they are loaded here, once, in Pillow's order, in which they are also tried.
        PIL.Image.preinit()
        PIL.Image.init()
        features = {name: feature for name, feature in self.dataset.features.items() if any(_decoders(feature))}
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="trl_vade-decode")
        begun = {}
        for row in dict.fromkeys(rows):
            begun[row] = self._begun.get(row) or pool.submit(_decoded_row, self._table, row, features)
        pool.shutdown(wait=False)  # its threads end with the last of these tasks
        return begun


def _decoders(feature: Any) -> Iterator[Any]:
    """The features inside `feature` that turn what Arrow holds into something else."""
    if isinstance(feature, dict):
        for part in feature.values():
            yield from _decoders(part)
    elif isinstance(feature, List | LargeList):
        yield from _decoders(feature.feature)
    elif hasattr(feature, "decode_example") and getattr(feature, "decode", True):
        yield feature


def _decoded_row(table: Dataset, number: int, features: dict[str, Any]) -> dict[str, Any]:
    """Row `number` of a data set in Arrow's format, with the columns in `features` decoded."""
    row = {name: column[0] for name, column in table[number].to_pydict().items()}
    name = f"Row {number}" + (f" (id {row['id']!r})" if row.get("id") is not None else "")
    for column, feature in features.items():
        row[column] = _decoded(feature, row[column], f"{name}, column {column!r}")
    return row


def _decoded(feature: Any, value: Any, where: str) -> Any:
    """As `decode_nested_example` of datasets 5.2, which decodes the first entry of a list one time more."""
    if value is None:
        return None
    if isinstance(feature, dict):
        return {name: _decoded(part, value[name], where) for name, part in feature.items()}
    if isinstance(feature, List | LargeList):
        return [_decoded(feature.feature, part, f"{where}, entry {i}") for i, part in enumerate(value)]
    if not any(_decoders(feature)):
        return value
    if not isinstance(feature, Image):
        return feature.decode_example(value)
    try:
        return feature.decode_example(value)
    except Exception as error:
        content = value.get("bytes") if isinstance(value, dict) else None
        what = repr(value["path"]) if content is None else f"{len(content)} bytes"
        raise ImageDecodeError(
            f"{where}: the image ({what}) cannot be decoded: {type(error).__name__}: {error}. The row was chosen for "
            "a generation batch, which needs the pictures of all its rows. Mend the file, or leave the row out of the "
            "data set, and resume from the last checkpoint; where that gives rows another identity (another number of "
            "them, or other image bytes and no id column), vade_on_mismatch='join' keeps what is known of the others."
        ) from error

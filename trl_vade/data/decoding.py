"""The rows of a data set, with images decoded by a few threads and ahead of time if possible.

`Dataset.__getitems__` decodes one image after the other on the training thread, and the first image of a list twice
(datasets 5.2). Here each row is a task that reads the row from Arrow and decodes each image once. The rows equal those
of `__getitems__`, pixel by pixel. Pillow releases the GIL while it decodes.
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

Rows = list[dict[str, Any]]

THREADS = 4
"""The decoding threads of one process. A node may run eight processes, and training has threads of its own."""


class RowDecoder:
    """A loader of rows by their numbers that decodes each row once and can start on the next batch.

    A data set with a transform, a format or media other than images is read by `__getitems__`, because a user's
    function may be unsafe in threads. Rows without images are read on the calling thread, too.

    Threads exist only while there is something to decode. An error of a row is raised when the row is loaded.
    """

    def __init__(self, dataset: Dataset):
        self.dataset = dataset
        self._begun: dict[int, Future[dict[str, Any]]] = {}

    @property
    def in_threads(self) -> bool:
        """Whether threads decode this data set."""
        decoders = list(_decoders(dict(self.dataset.features)))
        images = [decoder for decoder in decoders if isinstance(decoder, Image)]
        return (
            is_plain(self.dataset) and bool(images) and all(isinstance(decoder, Image | Json) for decoder in decoders)
        )

    @property
    def has_transform(self) -> bool:
        """Whether the data set has a transform, which may be random."""
        return bool(self.dataset.format["type"] == "custom")

    @functools.cached_property
    def _table(self) -> Dataset:
        """The data set in Arrow's format; cached, because creating it copies the list of the table's chunks."""
        return self.dataset.with_format("arrow")

    def prefetch(self, rows: list[int]) -> None:
        """Start decoding `rows` in the background, in place of earlier ones, and return at once."""
        if self.in_threads:
            self._begun = self._begin(rows)

    def load(self, rows: list[int]) -> Rows:
        """Return the rows, equal to `dataset.__getitems__(rows)`; wait for rows that `prefetch` started.

        A repeated row is decoded once, and every repetition gets its own values. An image that cannot be decoded is an
        `ImageDecodeError`.
        """
        decoded = self._decode(list(dict.fromkeys(rows)))
        fresh = dict(decoded)
        return [fresh.pop(row) if row in fresh else self._again(row, decoded[row]) for row in rows]

    def _decode(self, rows: list[int]) -> dict[int, dict[str, Any]]:
        if not self.in_threads:
            return dict(zip(rows, load_rows(self.dataset, rows), strict=True))
        self._begun = self._begin(rows)
        try:
            return {row: self._begun[row].result() for row in rows}
        finally:
            self.forget()

    def _again(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        """Return a second copy of `row` with its own values."""
        try:
            return own_values(row)
        except TypeError:
            return load_rows(self.dataset, [number])[0]

    def forget(self) -> None:
        """Cancel all prefetching and wait until no thread works on it."""
        wait([task for task in self._begun.values() if not task.cancel()])
        self._begun = {}

    def _begin(self, rows: list[int]) -> dict[int, "Future[dict[str, Any]]"]:
        for row in self._begun.keys() - set(rows):
            self._begun[row].cancel()
        # Pillow (12.3) loads its formats on first use, without a lock, so a second thread may miss a format. They are
        # loaded here, in Pillow's order, in which they are also tried.
        PIL.Image.preinit()
        PIL.Image.init()
        features = {name: feature for name, feature in self.dataset.features.items() if any(_decoders(feature))}
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="trl_vade-decode")
        begun = {}
        for row in dict.fromkeys(rows):
            begun[row] = self._begun.get(row) or pool.submit(_decoded_row, self._table, row, features)
        pool.shutdown(wait=False)  # the threads end with the last task
        return begun


def load_rows(dataset: Dataset, rows: list[int]) -> list[dict[str, Any]]:
    """Return `dataset.__getitems__(rows)`, and add the number of the row to an error."""
    try:
        return list(dataset.__getitems__(rows))
    except Exception as error:
        for row in rows if len(rows) > 1 else ():
            load_rows(dataset, [row])
        error.add_note(f"This happened while loading row {', '.join(map(str, rows))} of the training data.")
        raise


def is_plain(dataset: Dataset) -> bool:
    """Return whether rows have all columns and neither a transform nor a format."""
    format = dataset.format
    return format["type"] is None and not format["format_kwargs"] and format["columns"] == dataset.column_names


def _decoders(feature: Any) -> Iterator[Any]:
    if isinstance(feature, dict):
        for part in feature.values():
            yield from _decoders(part)
    elif isinstance(feature, List | LargeList):
        yield from _decoders(feature.feature)
    elif hasattr(feature, "decode_example") and getattr(feature, "decode", True):
        yield feature


def _decoded_row(table: Dataset, number: int, features: dict[str, Any]) -> dict[str, Any]:
    row = {name: column[0] for name, column in table[number].to_pydict().items()}
    name = f"Row {number}" + (f" (id {row['id']!r})" if row.get("id") is not None else "")
    for column, feature in features.items():
        row[column] = _decoded(feature, row[column], f"{name}, column {column!r}")
    return row


def _decoded(feature: Any, value: Any, where: str) -> Any:
    """Decode like `decode_nested_example` of datasets 5.2, which decodes the first entry of a list twice."""
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
            f"{where}: the image ({what}) cannot be decoded: {type(error).__name__}: {error}. A generation batch "
            "needs the images of all its rows. Repair the file or drop the row, and resume from the last checkpoint. "
            "A dropped row, or new image bytes without an id column, change the identity of the data set: then start "
            "a new run from the checkpoint's weights with vade_posterior_init=<checkpoint>, which joins rows by id."
        ) from error

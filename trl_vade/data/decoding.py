"""The rows of a data set, with images decoded by a few threads and ahead of time if possible.

They equal those of `Dataset.__getitems__`, pixel by pixel. It decodes one image after the other on the training
thread, and the first image of a list twice (datasets 5.2). Each completion owns its values, as with TRL's loader.
"""

import copy
import datetime
import decimal
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import PIL.Image
import torch
from datasets import Dataset, Image, LargeList, List
from datasets.features import Json

from trl_vade.errors import ImageDecodeError, abbreviated

_IMMUTABLE = str | bytes | int | float | complex | None | datetime.date | datetime.time | datetime.timedelta
_IMMUTABLE |= decimal.Decimal | uuid.UUID | np.generic
_PLAIN = {str, bytes, int, float, bool, type(None)}


def own_values(row: dict[str, Any], *, pictures: bool = True) -> dict[str, Any]:
    """Return a copy of `row` that shares no mutable value with it, or with `pictures=False` none but its pictures.

    A value that may hold a file or a pointer (a video decoder, an animated image) is a `TypeError`: load it again.
    """
    memo: dict[int, Any] = {}
    _copy_leaves(row, memo, pictures)
    return copy.deepcopy(row, memo)


def own_rows(rows: list[dict[str, Any]], prompts: list[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return copies of rows and their prompts, which may hold the same objects. What cannot be copied stays."""
    pairs = []
    for row, prompt in zip(rows, prompts, strict=True):
        pair = {"row": row, "prompt": prompt}
        with suppress(TypeError):
            pair = own_values(pair)
        pairs.append(pair)
    return [pair["row"] for pair in pairs], [pair["prompt"] for pair in pairs]


def _copy_leaves(value: Any, memo: dict[int, Any], pictures: bool) -> None:
    """Put into the `memo` for a `deepcopy` of `value` what the copy has in place of images and tensors."""
    if type(value) is list and {*map(type, value)} <= _PLAIN:
        memo[id(value)] = value.copy()  # `deepcopy` takes milliseconds for long lists (embeddings, token ids)
    elif type(value) in (dict, list, tuple, set):
        for part in value.values() if type(value) is dict else value:
            _copy_leaves(part, memo, pictures)
    elif type(value) is torch.Tensor:
        memo[id(value)] = value.clone()  # a `deepcopy` of a view would copy its base, the whole batch
    elif isinstance(value, PIL.Image.Image):
        if getattr(value, "is_animated", False):
            raise TypeError("An animated image reads its frames from a file, which copies would share.")
        memo[id(value)] = value.copy() if pictures else value
    elif not (isinstance(value, _IMMUTABLE) or (type(value) is np.ndarray and not value.dtype.hasobject)):
        raise TypeError(f"A value of type {type(value).__qualname__} cannot be copied.")


Rows = list[dict[str, Any]]
Result = TypeVar("Result")

THREADS = 4  # of one process; a node may run eight processes, and training has threads of its own


class RowDecoder:
    """A loader of rows by their numbers that decodes each row once and can start on the next batch.

    A data set with a transform, a format, other media or no images is read by `__getitems__` on the calling thread: a
    user's function may be unsafe in threads. An error of a row is raised when the row is loaded.

    `shares_pictures` is whether a repeated row, or rows that store the same image, get one picture.
    """

    def __init__(self, dataset: Dataset):
        self.dataset, self.shares_pictures = dataset, False
        self._table = dataset.with_format("arrow")  # once: it copies the list of the table's chunks
        self._begun: dict[int, Future[dict[str, Any]]] = {}
        self._pictures: dict[Any, PIL.Image.Image] = {}  # of the batch, by what the table stores

    @property
    def in_threads(self) -> bool:
        """Whether threads decode this data set."""
        format, decoders = self.dataset.format, list(_decoders(dict(self.dataset.features)))
        if format["type"] or format["format_kwargs"] or format["columns"] != self.dataset.column_names:
            return False
        return {Image} <= {*map(type, decoders)} <= {Image, Json}

    @property
    def has_transform(self) -> bool:
        """Whether the data set has a transform, which may be random."""
        return bool(self.dataset.format["type"] == "custom")

    def prefetch(self, rows: list[int]) -> None:
        """Start decoding `rows` in the background, in place of earlier ones, and return at once."""
        if self.in_threads:
            self._begun = self._begin(rows)

    def load(self, rows: list[int]) -> Rows:
        """Return the rows, equal to `dataset.__getitems__(rows)`; wait for rows that `prefetch` started.

        A repeated row is decoded once, and each owns its values. A damaged image is an `ImageDecodeError`.
        """
        once = [*dict.fromkeys(rows)]
        if self.in_threads:
            self._begun = self._begin(once)
            try:
                decoded = {row: task.result() for row, task in self._begun.items()}
            finally:
                self.forget()
        else:
            decoded = dict(zip(once, naming_row(once, once, self.dataset.__getitems__), strict=True))
        fresh = dict(decoded)
        return [fresh.pop(row) if row in fresh else self._again(row, decoded[row]) for row in rows]

    def _again(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        try:
            return own_values(row, pictures=not self.shares_pictures)
        except TypeError:
            return naming_row([number], [number], self.dataset.__getitems__)[0]

    def forget(self) -> None:
        """Cancel all prefetching and wait until no thread works on it."""
        wait([task for task in self._begun.values() if not task.cancel()])
        self._begun, self._pictures = {}, {}

    def _begin(self, rows: list[int]) -> dict[int, "Future[dict[str, Any]]"]:
        for row in self._begun.keys() - set(rows):
            self._begun[row].cancel()
        # Pillow (12.3) loads its formats on first use, without a lock: a second thread may miss one.
        PIL.Image.preinit()
        PIL.Image.init()
        features = {name: feature for name, feature in self.dataset.features.items() if any(_decoders(feature))}
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="trl_vade-decode")
        begun = {}
        for row in dict.fromkeys(rows):
            begun[row] = self._begun.get(row) or pool.submit(self._decoded_row, self._table, row, features)
        pool.shutdown(wait=False)  # the threads end with the last task
        return begun

    def _decoded_row(self, table: Dataset, number: int, features: dict[str, Any]) -> dict[str, Any]:
        row = {name: column[0] for name, column in table[number].to_pydict().items()}
        for column, feature in features.items():
            try:
                row[column] = self._decoded(feature, row[column])
            except Exception as error:
                raise ImageDecodeError(
                    f"Row {number} (id {row.get('id')!r}), column {column!r}: an image cannot be decoded: "
                    f"{type(error).__name__}: {error}. Repair the file, and resume from the last checkpoint. Or drop "
                    "the row, and start a new run from its weights, with vade_posterior_init=<checkpoint>."
                ) from error
        return row

    def _decoded(self, feature: Any, value: Any) -> Any:
        """Decode like `decode_nested_example` of datasets 5.2, which decodes the first entry of a list twice."""
        if value is None:
            return None
        if isinstance(feature, dict):
            return {name: self._decoded(part, value[name]) for name, part in feature.items()}
        if isinstance(feature, List | LargeList):
            return [self._decoded(feature.feature, part) for part in value]
        if not any(_decoders(feature)):
            return value
        if not (self.shares_pictures and isinstance(feature, Image)):
            return feature.decode_example(value)
        stored, pictures = (feature.mode, value["bytes"] or value["path"]), self._pictures
        image = pictures.get(stored) or feature.decode_example(value)
        # Two threads may both have decoded it; one of the two pictures is kept.
        return image if getattr(image, "is_animated", False) else pictures.setdefault(stored, image)


def naming_row(names: Sequence[Any], items: Sequence[Any], process: Callable[[Any], Result]) -> Result:
    """Return `process(items)`, or raise the error of the first that fails alone, with a note of its name."""
    try:
        return process(items)
    except Exception as error:
        if len(items) == 1:
            row = abbreviated(names[0])
            error.add_note(f"This happened with row {row} of the data (rows count from 0). Repair it or drop it.")
            raise
        for name, item in zip(names, items, strict=True):
            naming_row([name], [item], process)
        error.add_note(f"This happened with rows {abbreviated(names)} together, and with none alone.")
        raise


def media_of(feature: Any) -> Iterator[Any]:
    """Yield the features in `feature` that can decode their values: images, audio, JSON."""
    if isinstance(feature, dict):
        for part in feature.values():
            yield from media_of(part)
    elif isinstance(feature, List | LargeList):
        yield from media_of(feature.feature)
    elif hasattr(feature, "decode_example"):
        yield feature


def _decoders(feature: Any) -> Iterator[Any]:
    return (each for each in media_of(feature) if getattr(each, "decode", True))

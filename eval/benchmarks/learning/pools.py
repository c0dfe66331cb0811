"""A regime as a directory with the base policy, and two sets of rows; built once and cached."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
from datasets.table import InMemoryTable
from tqdm.auto import tqdm
from transformers import AutoModelForImageTextToText, AutoProcessor

from trl_vade.testbed.dataset import FEATURES, cached_directory, encode_png, iter_scenes, scene_digest, settings_digest
from trl_vade.testbed.dataset import FORMAT_VERSION as DATA_VERSION
from trl_vade.testbed.model import FORMAT_VERSION as MODEL_VERSION
from trl_vade.testbed.model import load_testbed_model
from trl_vade.testbed.scenes import LEVELS, TASKS, Scene

from .chains import FORMAT_VERSION as CHAINS_VERSION
from .chains import Chain, ChainSFTSettings, iter_chains, load_chain_model, wrong_answer
from .fast_policy import FastPolicy
from .regimes import REGIMES, Regime

FORMAT_VERSION = 1  # of the cache key: raised where the same regime and seed would give another pool
CANDIDATES = 128  # rows drawn, and measured where there is a filter, at a time


def load_regime(
    name: str | Regime,
    seed: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
) -> tuple[Path, datasets.Dataset, datasets.Dataset]:
    """Return the base policy's directory, the pool to train on and the rows to validate on; cached.

    A pure function of the regime and the seed (of the initial weights, the fine-tuning and the pool), on one machine:
    a filter compares floating-point numbers. The parent of the cached directories is `$HF_HOME/trl_vade` by default.
    """
    regime = REGIMES[name] if isinstance(name, str) else name
    model_directory = _load_model(regime, seed, cache_dir, progress)
    sizes = {"train": regime.num_train, "validation": regime.num_validation}
    key = regime_key(regime, seed)

    def build(directory: Path) -> None:
        model = AutoModelForImageTextToText.from_pretrained(model_directory)
        processor = AutoProcessor.from_pretrained(model_directory)
        for split, size in sizes.items():
            rows = draw_pool(regime, split, size, seed, model, processor, progress=progress)
            as_dataset(rows).to_parquet(directory / f"{split}.parquet")

    directory = cached_directory(f"regime-{regime.name}", key, build, cache_dir)
    train, validation = (
        datasets.Dataset(
            InMemoryTable(pq.read_table(directory / f"{split}.parquet")),
            info=datasets.DatasetInfo(features=FEATURES),
            split=datasets.NamedSplit(split),
            # As in the testbed: what the rows depend on, so that a resumed run finds its data set again.
            fingerprint=settings_digest({**key, "split": split}),
        )
        for split in sizes
    )
    return model_directory, train, validation


def draw_pool(
    regime: Regime, split: str, size: int, seed: int, model: Any, processor: Any, *, progress: bool = True
) -> list[dict[str, Any]]:
    """Return `size` rows of the side `split`, as in `FEATURES`: the first of the stream that fit shares and filter."""
    left = regime.quotas(size)
    rows: list[dict[str, Any]] = []
    stream = _candidates(regime, split, seed, left)
    with tqdm(total=size, desc=f"drawing {regime.name}, {split}", unit="row", disable=not progress) as bar:
        while len(rows) < size:
            drawn = [_row(item) for item in islice(stream, CANDIDATES) if left.get((item.task, item.level), 0)]
            for row, fits in zip(drawn, _fit(regime, drawn, model, processor), strict=True):
                cell = (row["task"], row["level"])
                if fits and left[cell]:
                    left[cell] -= 1
                    rows.append(row)
                    bar.update()
    if split == "train" and regime.wrong_labels:
        rng = np.random.default_rng(seed)
        for place in rng.permutation(size)[: round(regime.wrong_labels * size)]:
            rows[place]["answer"] = wrong_answer(rows[place]["answer"])
    return rows


def _fit(regime: Regime, rows: list[dict[str, Any]], model: Any, processor: Any) -> list[bool]:
    """Say of each row whether the base policy's exact pass rate is in the range of its level."""
    bounds = [regime.pass_range.get(row["level"]) for row in rows]
    asked = [row for row, pair in zip(rows, bounds, strict=True) if pair is not None]
    rates = iter(FastPolicy(model, processor, as_dataset(asked)).pass_rates() if asked else ())
    return [pair is None or bool(pair[0] <= next(rates) <= pair[1]) for pair in bounds]


def as_dataset(rows: list[dict[str, Any]]) -> datasets.Dataset:
    """Return rows of `draw_pool` as a data set."""
    return datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in FEATURES}, features=FEATURES)


def _load_model(regime: Regime, seed: int, cache_dir: str | os.PathLike[str] | None, progress: bool) -> Path:
    if isinstance(regime.recipe, ChainSFTSettings):
        return load_chain_model(seed, cache_dir, regime.recipe, progress=progress)
    return load_testbed_model(seed, cache_dir, settings=regime.recipe, progress=progress)


def regime_key(regime: Regime, seed: int) -> dict[str, Any]:
    """Return all that the rows depend on. The text that describes the regime is not part of it."""
    return {
        "format": FORMAT_VERSION,
        "data": DATA_VERSION,
        "model": MODEL_VERSION,
        "chains": CHAINS_VERSION,
        "seed": seed,
        "recipe": asdict(regime.recipe),
        "parts": [[task, level, parts] for (task, level), parts in regime.parts.items()],
        "pass_range": [[level, *bounds] for level, bounds in regime.pass_range.items()],
        "wrong_labels": regime.wrong_labels,
        "sizes": [regime.num_train, regime.num_validation],
    }


def _candidates(regime: Regime, split: str, seed: int, left: Mapping[tuple[str, int], int]) -> Iterator[Scene | Chain]:
    """Yield rows of the cells that have room `left` at the time, and others; the caller sorts them out."""
    if isinstance(regime.recipe, ChainSFTSettings):
        return iter_chains(
            split, seed, [level for _, level in regime.parts], skills=[task for task, _ in regime.parts]
        )

    def mix(index: int) -> Sequence[float]:
        task = TASKS[index % len(TASKS)]  # as `iter_scenes` deals them
        room = [left.get((task, level), 0) for level in LEVELS]
        # A task that is full must be dealt all the same: level 3 has the most pictures, and cannot be used up.
        return [share / sum(room) for share in room] if any(room) else [0.0, 0.0, 1.0]

    return iter_scenes(split, seed, mix)


def _row(item: Scene | Chain) -> dict[str, Any]:
    pictured = isinstance(item, Scene)
    return {
        "prompt": [{"role": "user", "content": item.question}],
        "images": [{"bytes": encode_png(item.image), "path": None}] if pictured else [],
        "answer": item.answer,
        "task": item.task,
        "level": item.level,
        "id": f"{item.task}-{item.level}-{scene_digest(item).hex() if pictured else item.digits}",
    }

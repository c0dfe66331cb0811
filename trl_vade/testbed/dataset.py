"""The testbed's data set: scenes as rows that `GRPOTrainer` takes as they are.

Train and validation cannot meet: a scene's own digest decides which side it belongs to, for every seed and size.
The fine-tuning of the tiny model draws from the train side with another stream: it sees no validation scene.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
from datasets.table import InMemoryTable
from PIL import Image
from tqdm.auto import tqdm

from .cache import cached_directory, settings_digest
from .scenes import LEVELS, TASKS, Scene, draw_scene

FORMAT_VERSION = 1
"""Raised whenever the same settings would give other rows; part of the cache key."""

STREAMS = {"train": 0, "validation": 1, "sft": 2}
MAX_ATTEMPTS = 1000
"""Draws for one row before its family is called used up; level 1 of math has 1250 pictures, all others more."""
VALIDATION_SHARE = 8
"""One scene in this many belongs to the validation side."""

FEATURES = datasets.Features(
    {
        "prompt": [{"role": datasets.Value("string"), "content": datasets.Value("string")}],
        "images": datasets.List(datasets.Image()),
        "answer": datasets.Value("string"),
        "task": datasets.Value("string"),
        "level": datasets.Value("int64"),
        "id": datasets.Value("string"),
    }
)


def scene_digest(scene: Scene) -> bytes:
    """Return 8 bytes that name a scene by its question and its pixels."""
    return hashlib.blake2b(scene.question.encode() + b"\0" + scene.image.tobytes(), digest_size=8).digest()


def iter_scenes(stream: str, seed: int, mix: Callable[[int], Sequence[float]] | None = None) -> Iterator[Scene]:
    """Yield scenes without end, all different, each on the side of the split that `stream` belongs to.

    Scene i depends on (seed, stream, i) and, as repetitions are rejected, on the scenes before it: a longer data set
    starts with the shorter one. Only the stream `sft` may repeat a scene.

    Args:
        stream: `train`, `validation` or `sft`.
        seed: 0 or more.
        mix: Shares of the three levels (sum 1) at scene i; without it tasks and levels are dealt in turn.
    """
    seen: set[bytes] = set()
    index = 0
    while True:
        # Philox is counter-based and the same on every platform; one generator a row keeps rows independent.
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, STREAMS[stream], index))))
        task = TASKS[index % len(TASKS)]
        level = LEVELS[index // len(TASKS) % len(LEVELS)] if mix is None else int(rng.choice(LEVELS, p=mix(index)))
        for _ in range(MAX_ATTEMPTS):
            scene = draw_scene(task, level, rng)
            digest = scene_digest(scene)
            if (digest[0] % VALIDATION_SHARE == 0) == (stream == "validation") and digest not in seen:
                break
        else:
            raise ValueError(
                f"no new scene for task {task!r}, level {level}, split {stream!r} after {MAX_ATTEMPTS} draws, at row "
                f"{index}: rows must differ and the pictures of this family are used up; ask for fewer rows"
            )
        if stream != "sft":  # Fine-tuning may see a scene twice; a data set may not hold it twice.
            seen.add(digest)
        yield scene
        index += 1


def build_dataset(
    num_train: int = 1024, num_validation: int = 256, seed: int = 0, *, progress: bool = True
) -> datasets.DatasetDict:
    """Draw splits `train` and `validation` with equal shares of 4 tasks x 3 levels, a pure function of the arguments.

    Columns: `prompt` (conversational, text only: TRL puts the image in), `images` (one 56 x 56 PNG), `answer`, `task`,
    `level` (1 to 3), `id` (unique; made from the content, so the same scene has the same id everywhere).

    Args:
        num_train: Rows to train on, 1 or more.
        num_validation: Rows to validate on, 1 or more; never the question and image of any train row of any seed.
        seed: 0 or more.
        progress: Show a progress bar.

    Raises:
        ValueError: a size below 1 or a negative seed.
    """
    sizes = {"train": num_train, "validation": num_validation}
    for name, value, least in (("num_train", num_train, 1), ("num_validation", num_validation, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    splits = {}
    with tqdm(total=sum(sizes.values()), desc="drawing the testbed", unit="row", disable=not progress) as bar:
        for split, size in sizes.items():
            rows = []
            for _, scene in zip(range(size), iter_scenes(split, seed), strict=False):
                rows.append(_row(scene))
                bar.update()
            columns = {name: [row[name] for row in rows] for name in FEATURES}
            table = datasets.Dataset.from_dict(columns, features=FEATURES).data.table
            splits[split] = _as_dataset(table, split, size, seed)
    return datasets.DatasetDict(splits)


def load_testbed_dataset(
    num_train: int = 1024,
    num_validation: int = 256,
    seed: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
) -> datasets.DatasetDict:
    """Return what `build_dataset` returns, cached as Parquet under `cache_dir` (default `$HF_HOME/trl_vade`)."""

    def build(directory: Path) -> None:
        for split, rows in build_dataset(num_train, num_validation, seed, progress=progress).items():
            rows.to_parquet(directory / f"{split}.parquet")

    settings = {"format": FORMAT_VERSION, "num_train": num_train, "num_validation": num_validation, "seed": seed}
    directory = cached_directory("testbed", settings, build, cache_dir)
    sizes = {"train": num_train, "validation": num_validation}
    return datasets.DatasetDict(
        {
            split: _as_dataset(pq.read_table(directory / f"{split}.parquet"), split, size, seed)
            for split, size in sizes.items()
        }
    )


def _row(scene: Scene) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": scene.question}],
        "images": [{"bytes": encode_png(scene.image), "path": None}],
        "answer": scene.answer,
        "task": scene.task,
        "level": scene.level,
        "id": f"{scene.task}-{scene.level}-{scene_digest(scene).hex()}",
    }


def encode_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _as_dataset(table: Any, split: str, size: int, seed: int) -> datasets.Dataset:
    # datasets would make a fresh fingerprint for every table in memory. This one says what the rows depend on, so a
    # built and a cached copy count as the same data set when a run is resumed.
    key = {"format": FORMAT_VERSION, "split": split, "size": size, "seed": seed}
    return datasets.Dataset(
        InMemoryTable(table),
        info=datasets.DatasetInfo(features=FEATURES),
        split=datasets.NamedSplit(split),
        fingerprint=settings_digest(key),
    )

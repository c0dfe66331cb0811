"""The testbed's data set: scenes as rows for `GRPOTrainer`, and complete directories in the HF cache.

Train and validation are disjoint for every seed and size, because the digest of a scene decides its split.
"""

import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
from datasets.table import InMemoryTable
from huggingface_hub import constants
from PIL import Image
from tqdm.auto import tqdm

from .scenes import LEVELS, TASKS, Scene, draw_scene


def settings_digest(settings: dict[str, Any]) -> str:
    """Return 12 hexadecimal digits that change with any of the JSON settings."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=6).hexdigest()


def cached_directory(
    name: str, settings: dict[str, Any], build: Callable[[Path], None], cache_dir: str | os.PathLike[str] | None = None
) -> Path:
    """Return the directory for these settings, which `build` fills if it is missing, in `cache_dir`.

    `name` begins its name. The JSON `settings` are all that the content depends on. The parent is `$HF_HOME/trl_vade`
    by default.
    """
    # Read at call time: huggingface_hub sets HF_HOME at import, and tests and users may replace it later.
    root = Path(cache_dir) if cache_dir is not None else Path(constants.HF_HOME) / "trl_vade"
    final = root / f"{name}-{settings_digest(settings)}"
    if final.is_dir():
        return final
    root.mkdir(parents=True, exist_ok=True)
    # The same parent is on the same file system, as the atomic os.replace needs.
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=root))
    try:
        build(partial)
        partial.chmod(0o755)  # mkdtemp makes it private, but a cache may be shared
        try:
            os.replace(partial, final)
        except OSError:
            if not final.is_dir():  # else another build was faster, and its content is the same
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


FORMAT_VERSION = 1  # The version of the rows, part of the cache key. Raise it when the same settings give other rows.

STREAMS = {"train": 0, "validation": 1, "sft": 2}
MAX_ATTEMPTS = 1000
"""The draws for one row before its family counts as used up. Level 1 of math has 1250 pictures, all others more."""
VALIDATION_SHARE = 8  # one scene in this many belongs to the validation split

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
    """Return 8 bytes that identify a scene by its question and its pixels."""
    return hashlib.blake2b(scene.question.encode() + b"\0" + scene.image.tobytes(), digest_size=8).digest()


def iter_scenes(stream: str, seed: int, mix: Callable[[int], Sequence[float]] | None = None) -> Iterator[Scene]:
    """Yield different scenes without end, each from the split of `stream`; only the stream `sft` may repeat one.

    Args:
        stream: `train`, `validation` or `sft`.
        seed: 0 or more.
        mix: returns the shares of the three levels (sum 1) at scene i. Without it levels take turns, as tasks do.

    Raises:
        ValueError: the different scenes of a task and level are used up.
    """
    seen: set[bytes] = set()
    for index in count():
        # Philox is counter-based and equal on every platform. One generator a row keeps rows independent.
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
                f"No new scene for task {task!r}, level {level}, split {stream!r} after {MAX_ATTEMPTS} draws, at row "
                f"{index}. Rows must differ, and the pictures of this family are used up. Ask for fewer rows."
            )
        if stream != "sft":  # a data set may not repeat a scene
            seen.add(digest)
        yield scene


def build_dataset(
    num_train: int = 1024, num_validation: int = 256, seed: int = 0, *, progress: bool = True
) -> datasets.DatasetDict:
    """Draw splits `train` and `validation` with equal shares of 4 tasks x 3 levels; equal arguments give equal rows.

    Columns: `prompt` (conversational, text only: TRL adds the image), `images` (one 56 x 56 PNG), `answer`, `task`,
    `level` (1 to 3) and `id` (unique; the same scene always has the same id).

    Args:
        num_train: the training rows, 1 or more.
        num_validation: the validation rows, 1 or more. No training row of any seed shares question and image with one.
        seed: 0 or more.
        progress: whether to show a progress bar, or one line in a file.

    Raises:
        ValueError: the seed is negative, or different scenes are used up.
    """
    sizes = {"train": num_train, "validation": num_validation}
    drawn = ((split, scene) for split, size in sizes.items() for scene in islice(iter_scenes(split, seed), size))
    rows: dict[str, list[dict[str, Any]]] = {split: [] for split in sizes}
    for split, scene in progress_bar(drawn, sum(sizes.values()), "drawing the testbed", "row", shown=progress):
        row: dict[str, Any] = {"prompt": [{"role": "user", "content": scene.question}]}
        row["images"] = [{"bytes": encode_png(scene.image), "path": None}]
        row |= {"answer": scene.answer, "task": scene.task, "level": scene.level}
        rows[split].append(row | {"id": f"{scene.task}-{scene.level}-{scene_digest(scene).hex()}"})
    tables = {split: datasets.Dataset.from_list(rows[split], features=FEATURES).data.table for split in sizes}
    return _as_datasets(tables, sizes, seed)


def load_testbed_dataset(
    num_train: int = 1024,
    num_validation: int = 256,
    seed: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
) -> datasets.DatasetDict:
    """Return the result of `build_dataset`, cached as Parquet under `cache_dir` (default `$HF_HOME/trl_vade`)."""

    def build(directory: Path) -> None:
        for split, rows in build_dataset(num_train, num_validation, seed, progress=progress).items():
            rows.to_parquet(directory / f"{split}.parquet")

    settings = {"format": FORMAT_VERSION, "num_train": num_train, "num_validation": num_validation, "seed": seed}
    directory = cached_directory("testbed", settings, build, cache_dir)
    sizes = {"train": num_train, "validation": num_validation}
    return _as_datasets({split: pq.read_table(directory / f"{split}.parquet") for split in sizes}, sizes, seed)


def progress_bar(things: Iterable[Any], total: int, what: str, unit: str, *, shown: bool) -> Iterable[Any]:
    """Return `things` with a bar on a terminal or in a notebook; a file gets one line."""
    bar = sys.stderr.isatty() or "ipykernel" in sys.modules
    if shown and not bar:
        print(f"{what}: {total:,} {unit}s", file=sys.stderr, flush=True)
    return tqdm(things, total=total, desc=what, unit=unit, disable=not (shown and bar))


def encode_png(image: Image.Image) -> bytes:
    """Return `image` as the bytes of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _as_datasets(tables: dict[str, Any], sizes: dict[str, int], seed: int) -> datasets.DatasetDict:
    splits = datasets.DatasetDict()
    for split, size in sizes.items():
        # datasets gives every table in memory a new fingerprint. By this one a built and a cached copy are the same.
        key = {"format": FORMAT_VERSION, "split": split, "size": size, "seed": seed}
        info = datasets.DatasetInfo(features=FEATURES)
        splits[split] = datasets.Dataset(
            InMemoryTable(tables[split]), info, datasets.NamedSplit(split), fingerprint=settings_digest(key)
        )
    return splits

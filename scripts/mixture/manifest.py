"""What `mixture.json` says of a build: counts of each source, overlap, versions and digests."""

import hashlib
import importlib.metadata
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .question_text import normalised_question
from .rows import DROPPED, Choice, Recipe, Row


def make_manifest(
    recipe: Recipe, chosen: list[Choice], splits: dict[str, list[Row]], command: str, files: list[Path]
) -> dict[str, Any]:
    """Return the manifest of a build whose `files` are written."""
    tasks = {split: Counter(row["task"] for row in rows) for split, rows in splits.items()}
    packages = ("trl-vade", "datasets", "huggingface_hub", "pillow", "pyarrow")
    return {
        "paper": "arXiv 2511.18902, Table 3",
        "command": command,
        "seed": recipe.seed,
        "read_from": "the Hub" if recipe.mirror is None else "local copies, whose revisions were not checked",
        "sources": [
            _counts(choice) | {split: counts[choice.source.task] for split, counts in tasks.items()}
            for choice in chosen
        ],
        "splits": {split: len(rows) for split, rows in splits.items()},
        "shared": _shared(splits),
        "overlap": _overlap(recipe, chosen),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "files": {file.relative_to(file.parents[1]).as_posix(): _sha256(file) for file in files},
    }


def in_words(choice: Choice) -> str:
    """Say how many rows of a source were read, were usable, were taken and were dropped."""
    counts = choice.counts
    return (
        f"{choice.source.name}: {counts['read']:,} rows read, {counts['usable']:,} usable, {len(choice.rows):,} of "
        f"{choice.source.count:,} taken; dropped: {dropped_in_words(counts)}"
    )


def dropped_in_words(counts: Mapping[str, int]) -> str:
    """List the reasons why rows were dropped, with their numbers."""
    return ", ".join(f"{reason} {counts[reason]:,}" for reason in DROPPED if counts.get(reason)) or "none"


def _counts(choice: Choice) -> dict[str, Any]:
    """Return the entry of a source in the manifest."""
    source, counts = choice.source, choice.counts
    facts = ("name", "task", "domain", "repo", "config", "revision", "licence")
    return {name: getattr(source, name) for name in facts} | {
        "asked": source.count,
        "read": counts["read"],
        "dropped": {reason: counts[reason] for reason in DROPPED if counts[reason]},
        "usable": counts["usable"],
        "taken": len(choice.rows),
    }


def _overlap(recipe: Recipe, chosen: list[Choice]) -> dict[str, Any] | None:
    if recipe.evaluation is None:
        return None
    removed = [
        {"source": choice.source.name, "evaluation_set": name}
        | {f"by_{way}": counts[way] for way in ("image", "question")}
        for choice in chosen
        for name, counts in sorted(choice.removed.items())
    ]
    return {"min_words": recipe.evaluation.min_words, "sets": recipe.evaluation.names, "removed": removed}


def _shared(splits: dict[str, list[Row]]) -> dict[str, int]:
    """Count the validation rows whose image, or image and question, is in the training split, too.

    Sources ask several questions about an image, and some contain the same data (geo3k and Geometry3K).
    """
    seen = {
        split: [
            (hashlib.sha256(row["images"][0]["bytes"]).digest(), normalised_question(row["prompt"][0]["content"]))
            for row in rows
        ]
        for split, rows in splits.items()
    }
    images, pairs = {image for image, _ in seen["train"]}, set(seen["train"])
    return {
        "image": sum(image in images for image, _ in seen["validation"]),
        "image_and_prompt": sum(pair in pairs for pair in seen["validation"]),
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

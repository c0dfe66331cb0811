"""Rows of evaluation sets in the training mixture: found by image and by question, and taken out.

What is found: an image with the same size and the same RGB pixels, in whatever lossless file; a question with the same
letters and digits. What is not: a picture that was compressed or scaled anew, and a question put in other words.
"""

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from trl_vade.errors import ConfigurationError

from .question_text import normalised_question, split_question
from .sources import kind_of

MIN_WORDS = 6
"""Shorter questions ("Find x.") are the same everywhere, and say nothing."""


# Column of the image and columns of the question, by the last part of the name, so that mirrors and copies of a
# benchmark are known as well. Read on the cards of AI4Math/MathVista, AI4Math/MathVerse (`question` could not be read
# there, the others could), MathLLMs/MathVision, lmms-lab/ScienceQA, lmms-lab/ChartQA and HuggingFaceM4/ChartQA.
KNOWN = {
    "mathvista": ("decoded_image", ["question", "query"]),
    "mathverse": ("image", ["question", "question_for_eval", "query_wo", "query_cot"]),
    "mathvision": ("decoded_image", ["question"]),
    "scienceqa": ("image", ["question"]),
    "chartqa": ("image", ["question", "query"]),
}

IMAGE_COLUMNS = ["image", "images", "decoded_image"]

logger = logging.getLogger(__name__)


@dataclass
class EvaluationSets:
    """Fingerprints of the images and questions of evaluation sets, each with the names of the sets that have it."""

    min_words: int = MIN_WORDS
    names: dict[str, dict[str, int]] = field(default_factory=dict)  # name -> images, questions, unreadable images
    images: dict[str, list[str]] = field(default_factory=dict)
    questions: dict[str, list[str]] = field(default_factory=dict)
    sizes: set[tuple[int, int]] = field(default_factory=set)

    def add(self, name: str, question: str | None, images: Iterable[bytes]) -> None:
        """Take in one row of the set `name`. A question that is too short is passed over."""
        counts = self.names.setdefault(name, {"images": 0, "questions": 0, "unreadable": 0})
        for content in images:
            try:
                size, fingerprint = image_fingerprint(content)
            except Exception:  # Pillow raises many kinds for a damaged file
                counts["unreadable"] += 1
                continue
            self.sizes.add(size)
            counts["images"] += _note(self.images, fingerprint, name)
        text = self._question(_bare(question or ""))
        if text:
            counts["questions"] += _note(self.questions, text, name)

    def with_image(self, content: bytes, size: tuple[int, int]) -> list[str]:
        """The sets that have this image. Only an image of a size that some set has is decoded.

        Raises:
            Exception: whatever Pillow raises for a damaged file.
        """
        return self.images.get(image_fingerprint(content)[1], []) if size in self.sizes else []

    def with_question(self, question: str) -> list[str]:
        """The sets that have this question (without choices and instructions)."""
        return self.questions.get(self._question(question), [])

    def digest(self) -> str:
        """Changes with whatever decides which rows are taken out."""
        parts = [str(self.min_words), *sorted(map(repr, (*self.images.items(), *self.questions.items())))]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()

    def _question(self, question: str) -> str:
        text = normalised_question(question)
        return text if text.count(" ") + 1 >= self.min_words else ""


def image_fingerprint(content: bytes) -> tuple[tuple[int, int], str]:
    """(width, height) of an image file, and the sha256 over these and the RGB pixels; transparency does not count."""
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        pixels = image.convert("RGB")
    digest = hashlib.sha256(f"{pixels.width} {pixels.height} ".encode())
    digest.update(pixels.tobytes())
    return pixels.size, digest.hexdigest()


def read_evaluation_sets(
    specifications: Iterable[str], *, min_words: int = MIN_WORDS, mirror: Path | None = None
) -> EvaluationSets:
    """Read the evaluation sets that `specifications` name.

    Args:
        specifications: `NAME[:CONFIG][@SPLIT]`, NAME being a repository of the Hub or a folder; without a split, all.
        min_words: questions of fewer words are passed over.
        mirror: a folder with copies of repositories, which go before those of the Hub.

    Raises:
        ConfigurationError: a set that cannot be opened, or has no columns of questions and images.
    """
    sets = EvaluationSets(min_words)
    for specification in specifications:
        label, splits = open_evaluation_set(specification, mirror)
        if label in sets.names:
            raise ConfigurationError(
                f"--evaluation_data names {label!r} twice: the report tells sets apart by their names. Name it once, "
                "without a split for all of them, or give one folder another name."
            )
        sets.add(label, None, [])
        for split in splits:
            for question, images in tqdm(_rows(label, split), desc=label, unit=" questions", disable=None):
                sets.add(label, question, images)
        counts = sets.names[label]
        logger.info("%s: %d different images, %d questions to compare", label, counts["images"], counts["questions"])
    return sets


def open_evaluation_set(specification: str, mirror: Path | None = None) -> tuple[str, list[Any]]:
    """The name for reports (of a folder the last part), and the splits as streams."""
    from datasets import load_dataset

    name, config, split = _parse(specification)
    local = [Path(name), *([mirror / name] if mirror else [])]
    place = next((str(folder) for folder in local if folder.is_dir()), name)
    try:
        loaded = load_dataset(place, config, split=split, streaming=True)
    except (ValueError, OSError) as error:  # no such configuration or split; no such repository or folder
        raise ConfigurationError(
            f"--evaluation_data {specification}: {error} Give NAME[:CONFIG][@SPLIT], NAME being a repository of the "
            "Hub or a folder that load_dataset reads."
        ) from error
    shown = Path(name).resolve().name if Path(name).is_dir() else name  # a report has no paths of this machine
    return specification.replace(name, shown, 1), [loaded] if split else list(loaded.values())


def report_rows(removed: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[tuple[str, str, int, int]]:
    """(source, evaluation set, rows by image, rows by question), from counts by source, set and way."""
    return [
        (source, name, counts.get("image", 0), counts.get("question", 0))
        for source, sets in removed.items()
        for name, counts in sorted(sets.items())
    ]


def _parse(specification: str) -> tuple[str, str | None, str | None]:
    if Path(specification).is_dir():
        return specification, None, None
    match = re.fullmatch(r"(?P<name>[^:@]+)(?::(?P<config>[^@]+))?(?:@(?P<split>\w+))?", specification)
    if match is None:
        raise ConfigurationError(
            f"--evaluation_data {specification!r} is not of the form NAME[:CONFIG][@SPLIT], such as "
            "AI4Math/MathVista@testmini."
        )
    return match["name"], match["config"], match["split"]


def _rows(label: str, stream: Any) -> Iterator[tuple[str | None, list[bytes]]]:
    """Question and images of each row; a row with several columns of questions comes once for each of them."""
    image_column, question_columns = _columns(label, stream.features or {})
    for row in stream.select_columns([image_column, *question_columns]).decode(False):
        images = row[image_column] if isinstance(row[image_column], list) else [row[image_column]]
        contents = [content for image in images if image and (content := _content(image))]
        for number, column in enumerate(question_columns):
            yield row[column], contents if number == 0 else []


def _columns(label: str, features: Mapping[str, Any]) -> tuple[str, list[str]]:
    base = re.split(r"[:@]", label)[0].rsplit("/", 1)[-1].casefold()
    image, questions = KNOWN.get(base, ("image", ["question"]))
    kinds = {name: kind_of(feature) for name, feature in features.items()}
    # MathVista and MathVision have a path in `image`, hence the kind.
    found_images = [name for name in (image, *IMAGE_COLUMNS) if kinds.get(name) in ("image", "list<image>")]
    found_questions = [name for name in questions if kinds.get(name) == "string"]
    if not found_images or not found_questions:
        raise ConfigurationError(
            f"--evaluation_data {label}: it has the columns {kinds}; to compare rows it takes a text in one of "
            f"{questions} and an image in one of {IMAGE_COLUMNS}. Rename its columns, or leave it out."
        )
    return found_images[0], found_questions


def _content(image: Mapping[str, Any]) -> bytes | None:
    """A file's bytes, from the row or, in a folder of images, from the disk."""
    if image["bytes"] is None and image["path"] and Path(image["path"]).is_file():
        return Path(image["path"]).read_bytes()
    content: bytes | None = image["bytes"]
    return content


def _bare(question: str) -> str:
    split = split_question(question)
    return question if split is None else split[0]


def _note(names: dict[str, list[str]], fingerprint: str, name: str) -> int:
    """Put `name` down for `fingerprint`; 1 where it was not."""
    known = names.setdefault(fingerprint, [])
    if name in known:
        return 0
    known.append(name)
    return 1

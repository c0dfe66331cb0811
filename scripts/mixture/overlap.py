"""Find rows of evaluation sets in the training mixture, by image or by question, to remove them.

An image is found by equal size and RGB pixels, in any lossless format. A question is found by equal letters and
digits and a similar picture. Data sets ask one sentence of many pictures, "Which of these is true?", often with the
same choices, so these prove nothing. They decide where the evaluation set has no picture to its question. A question
in other words is not found.
"""

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm.auto import tqdm

from trl_vade.errors import ConfigurationError

from .fetch import kind_of
from .question_text import normalised_question, split_question

SIMILAR = 12
"""The most of 256 bits in which the outlines of two copies of a picture differ."""

MIN_WORDS = 6
"""Shorter questions ("Find x.") occur everywhere and prove no overlap."""

# Read on the cards of AI4Math/MathVista, AI4Math/MathVerse, MathLLMs/MathVision, lmms-lab/ScienceQA, lmms-lab/ChartQA
# and HuggingFaceM4/ChartQA. MathVista and MathVision have a path in `image`, so the kind of a column is checked, too.
QUESTION_COLUMNS = ["question", "query", "question_for_eval", "query_wo", "query_cot"]
IMAGE_COLUMNS = ["image", "images", "decoded_image"]
CHOICE_COLUMNS = ["choices", "options"]

logger = logging.getLogger(__name__)


@dataclass
class EvaluationSets:
    """Fingerprints of the images and questions of evaluation sets, each with the names of its sets."""

    min_words: int = MIN_WORDS
    names: dict[str, dict[str, int]] = field(default_factory=dict)  # name -> images, questions, unreadable images
    images: dict[str, set[str]] = field(default_factory=dict)  # fingerprint -> names
    outlines: dict[str, set[tuple[str, int]]] = field(default_factory=dict)  # question -> names with its pictures
    choices: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # without one: question, choices -> names
    sizes: set[tuple[int, int]] = field(default_factory=set)

    def add(
        self, name: str, questions: Iterable[str | None] = (), choices: list[str] | None = None, images: Any = ()
    ) -> None:
        """Add a row of the set `name`: wordings of its question, its choices, and the files of its images."""
        counts = self.names.setdefault(name, {"images": 0, "questions": 0, "unreadable": 0})
        outlines = []
        for content in images:
            try:
                size, fingerprint = image_fingerprint(content)
                outlines.append((name, outline(content)))
            except Exception:  # Pillow raises many kinds for a damaged file
                counts["unreadable"] += 1
                continue
            self.sizes.add(size)
            counts["images"] += name not in self.images.setdefault(fingerprint, set())
            self.images[fingerprint].add(name)
        for question in filter(None, questions):
            bare, labelled = split_question(question) or (question, None)
            if text := self._question(bare):
                counts["questions"] += all(name != other for other, _ in self.outlines.get(text, ()))
                self.outlines.setdefault(text, set()).update(outlines)
                if not outlines:
                    self.choices.setdefault((text, _sign(choices or labelled or [])), set()).add(name)

    def with_image(self, content: bytes, size: tuple[int, int]) -> list[str]:
        """Return the sets that contain this image. It is decoded only if a set has an image of its size.

        Raises:
            Exception: whatever Pillow raises for a damaged file.
        """
        return sorted(self.images.get(image_fingerprint(content)[1], ())) if size in self.sizes else []

    def with_question(self, question: str, choices: list[str] | None, content: bytes) -> list[str]:
        """Return the sets that ask this question of a similar picture, or of none and with the same choices."""
        text = self._question(question)
        names = set(self.choices.get((text, _sign(choices or [])), ()))
        if pictures := self.outlines.get(text):
            with suppress(Exception):  # Pillow's, for a damaged file, which is dropped where it is taken
                seen = outline(content)
                names |= {name for name, other in pictures if (seen ^ other).bit_count() <= SIMILAR}
        return sorted(names)

    def _question(self, question: str) -> str:
        text = normalised_question(question)
        return text if text.count(" ") + 1 >= self.min_words else ""


def image_fingerprint(content: bytes) -> tuple[tuple[int, int], str]:
    """Return (width, height) of an image file, and the SHA-256 of these and its RGB pixels without transparency."""
    with Image.open(BytesIO(content)) as image:
        pixels = image.convert("RGB")
    digest = hashlib.sha256(f"{pixels.width} {pixels.height} ".encode())
    digest.update(pixels.tobytes())
    return pixels.size, digest.hexdigest()


def outline(content: bytes) -> int:
    """Return 256 bits of a picture: whether each of 16 x 16 fields is clearly darker than the one to its right.

    Another size or compression changes few of them.
    """
    with Image.open(BytesIO(content)) as image:
        fields = image.convert("RGB").convert("L").resize((17, 16), Image.Resampling.BOX).tobytes()
    darker = [fields[i] + 2 < fields[i + 1] for i in range(len(fields) - 1) if i % 17 < 16]
    return int("".join(map(str, map(int, darker))), 2)


def _sign(choices: list[str]) -> str:
    return "\n".join(sorted(map(normalised_question, choices)))


def read_evaluation_sets(
    specifications: Iterable[str], *, min_words: int = MIN_WORDS, mirror: Path | None = None
) -> EvaluationSets:
    """Read the evaluation sets that `specifications` name.

    Args:
        specifications: `NAME[:CONFIG][@SPLIT]`, NAME is a repository on the Hub or a folder; all splits without SPLIT.
        min_words: questions with fewer words are skipped.
        mirror: a folder with copies of repositories, which are read in place of the Hub.

    Raises:
        ConfigurationError: a set cannot be opened, lacks a question or image column, or is named twice.
    """
    sets = EvaluationSets(min_words)
    for specification in specifications:
        label, splits = open_evaluation_set(specification, mirror)
        if label in sets.names:
            raise ConfigurationError(
                f"--evaluation_data names {label!r} twice, and the report lists sets by their names. Name it once, "
                "without a split for all of its splits, or rename one of the folders."
            )
        sets.add(label)
        for split in splits:
            for row in tqdm(_rows(label, split), desc=label, unit=" questions", disable=None):
                sets.add(label, *row)
        counts = sets.names[label]
        logger.info("%s: %d different images, %d questions to compare", label, counts["images"], counts["questions"])
    return sets


def open_evaluation_set(specification: str, mirror: Path | None = None) -> tuple[str, list[Any]]:
    """Return the name of a set in reports (the last part of a folder's path), and its splits as streams."""
    from datasets import load_dataset

    name, config, split = _parse(specification)
    local = [Path(name), *([mirror / name] if mirror else [])]
    place = next((str(folder) for folder in local if folder.is_dir()), name)
    try:
        loaded = load_dataset(place, config, split=split, streaming=True)
    except (ValueError, OSError) as error:  # no such configuration or split; no such repository or folder
        raise ConfigurationError(
            f"--evaluation_data {specification}: {error} Write NAME[:CONFIG][@SPLIT], where NAME is a repository on "
            "the Hub or a folder that load_dataset reads."
        ) from error
    shown = Path(name).resolve().name if Path(name).is_dir() else name  # a report has no paths of this machine
    return specification.replace(name, shown, 1), [loaded] if split else list(loaded.values())


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


def _rows(label: str, stream: Any) -> Iterator[tuple[list[str | None], list[str] | None, list[bytes]]]:
    """Yield the question in all its columns, choices and images of each row."""
    features = stream.features or {}
    image_column, questions = _columns(label, features)
    choices = [name for name in CHOICE_COLUMNS if name in features and kind_of(features[name]) == "list<string>"][:1]
    for row in stream.select_columns([image_column, *questions, *choices]).decode(False):
        images = row[image_column] if isinstance(row[image_column], list) else [row[image_column]]
        contents = [content for image in images if image and (content := _content(image))]
        yield [row[name] for name in questions], next((row[name] for name in choices), None), contents


def _columns(label: str, features: Mapping[str, Any]) -> tuple[str, list[str]]:
    kinds = {name: kind_of(feature) for name, feature in features.items()}
    images = [name for name in IMAGE_COLUMNS if kinds.get(name) in ("image", "list<image>")]
    questions = [name for name in QUESTION_COLUMNS if kinds.get(name) == "string"]
    if not images or not questions:
        raise ConfigurationError(
            f"--evaluation_data {label} has the columns {kinds}. The comparison needs a text in one of "
            f"{QUESTION_COLUMNS} and an image in one of {IMAGE_COLUMNS}. Rename its columns, or leave it out."
        )
    return images[0], questions


def _content(image: Mapping[str, Any]) -> bytes | None:
    """Return the bytes of a file from the row, or from the disk for a folder of images."""
    if image["bytes"] is None and image["path"] and Path(image["path"]).is_file():
        return Path(image["path"]).read_bytes()
    content: bytes | None = image["bytes"]
    return content

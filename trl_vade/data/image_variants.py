"""Variants of a picture for DIVA-GRPO (arXiv 2603.01106): harder to read, with the same answer.

Each is a pure function of the picture, the kind and the row's id: the same to the byte with the same Pillow and numpy.
The paper's released code is not copied. Its rotation takes the strength as degrees, and its noise swaps the colour
channels and leaves out two thirds of the picture.
"""

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from trl_vade.errors import ConfigurationError, abbreviated

LEVELS = (1, 2, 3)
DEGREES = {1: (5.0, 8.0), 2: (8.0, 13.0), 3: (13.0, 20.0)}
GAUSSIAN = {1: 0.05, 2: 0.10, 3: 0.15}  # standard deviation on a scale of 0 to 1
SALT_PEPPER = {1: 0.01, 2: 0.03, 3: 0.06}  # share of the pixels
SPECKLE = {1: 0.10, 2: 0.20, 3: 0.30}  # standard deviation, times the pixel's value
BLUR = {1: 0.010, 2: 0.020, 3: 0.030}  # standard deviation over the shorter side
LOW_RESOLUTION = {1: 0.6, 2: 0.4, 3: 0.25}  # of both sides


def changed_image(image: Image.Image, kind: str, row_id: str) -> Image.Image:
    """Return the picture as `kind`, such as `rotation-2`, makes it, in RGB and of the same size.

    Args:
        image: of any mode.
        kind: a name of `IMAGE_KINDS`, a hyphen and a level from 1 to 3.
        row_id: the random numbers depend on it and on the kind alone.

    Raises:
        ConfigurationError: the kind is not known.
    """
    name, _, level = kind.rpartition("-")
    if name not in IMAGE_KINDS or level not in map(str, LEVELS):
        raise ConfigurationError(
            f"The kind of variant is {abbreviated(kind)}. Set a kind of picture and a level from 1 to 3: "
            f"{', '.join(f'{each}-1' for each in IMAGE_KINDS)}."
        )
    return IMAGE_KINDS[name](image.convert("RGB"), int(level), random_of(row_id, kind))


def random_of(row_id: str, kind: str) -> np.random.Generator:
    """Return a generator whose numbers depend on the row's id and the kind alone."""
    words = hashlib.sha256(f"{row_id}\0{kind}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(words[:16], "little")))


def _rotated(image: Image.Image, level: int, random: np.random.Generator) -> Image.Image:
    """Turn the picture to either side. The corners get the mean colour of its border."""
    degrees = random.uniform(*DEGREES[level]) * random.choice([-1.0, 1.0])
    pixels = np.asarray(image)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    colour = tuple(np.rint(border.mean(axis=0)).astype(int).tolist())
    return image.rotate(degrees, resample=Image.Resampling.BICUBIC, fillcolor=colour)


def _gaussian(image: Image.Image, level: int, random: np.random.Generator) -> Image.Image:
    values = _values(image)
    return _picture(values + random.normal(0.0, GAUSSIAN[level], values.shape))


def _salt_pepper(image: Image.Image, level: int, random: np.random.Generator) -> Image.Image:
    """Make single pixels black or white, in all channels at once."""
    values = _values(image)
    hit = random.random(values.shape[:2]) < SALT_PEPPER[level]
    values[hit] = random.integers(0, 2, int(hit.sum()))[:, None]
    return _picture(values)


def _speckle(image: Image.Image, level: int, random: np.random.Generator) -> Image.Image:
    values = _values(image)
    return _picture(values * (1.0 + random.normal(0.0, SPECKLE[level], values.shape)))


def _blurred(image: Image.Image, level: int, random: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(max(0.5, BLUR[level] * min(image.size))))


def _low_resolution(image: Image.Image, level: int, random: np.random.Generator) -> Image.Image:
    small = [max(1, round(side * LOW_RESOLUTION[level])) for side in image.size]
    return image.resize(small, Image.Resampling.BICUBIC).resize(image.size, Image.Resampling.BICUBIC)


def _values(image: Image.Image) -> NDArray[np.float64]:
    return np.asarray(image, dtype=np.float64) / 255.0


def _picture(values: NDArray[np.float64]) -> Image.Image:
    return Image.fromarray(np.rint(np.clip(values, 0.0, 1.0) * 255.0).astype(np.uint8))


IMAGE_KINDS: dict[str, Callable[[Image.Image, int, np.random.Generator], Image.Image]] = {
    "rotation": _rotated,
    "gaussian": _gaussian,
    "salt-pepper": _salt_pepper,
    "speckle": _speckle,
    "blur": _blurred,
    "low-resolution": _low_resolution,
}
"""By name, the changes of a picture. Each takes the picture in RGB, a level from 1 to 3 and a generator."""

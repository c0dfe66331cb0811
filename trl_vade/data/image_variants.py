"""Variants of a picture for DIVA-GRPO (arXiv 2603.01106): harder to read, with the same answer.

Each is a pure function of the picture, the kind, the row's id and a seed: the same to the byte with the same Pillow
and numpy. The paper's released code is not copied. Its rotation takes the strength as degrees, and its noise swaps the
colour channels and leaves out two thirds of the picture.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

from trl_vade.errors import ConfigurationError, abbreviated

LEVELS = (1, 2, 3)
DEGREES = {1: (5.0, 8.0), 2: (8.0, 13.0), 3: (13.0, 20.0)}
GAUSSIAN = {1: 0.05, 2: 0.10, 3: 0.15}  # standard deviation on a scale of 0 to 1
SALT_PEPPER = {1: 0.01, 2: 0.03, 3: 0.06}  # share of the pixels
SPECKLE = {1: 0.10, 2: 0.20, 3: 0.30}  # standard deviation, times the pixel's value
BLUR = {1: 0.010, 2: 0.020, 3: 0.030}  # standard deviation over the shorter side
LOW_RESOLUTION = {1: 0.6, 2: 0.4, 3: 0.25}  # of both sides
DRAWN_SHARE = 0.22  # of the picture's height, that the drawn question may take
SMALLEST_TEXT = 10  # pixels; a longer question takes more of the height


def changed_image(image: Image.Image, kind: str, row_id: str, seed: int = 0) -> Image.Image:
    """Return the picture as `kind`, such as `rotation-2`, makes it, in RGB and of the same size.

    Args:
        image: of any mode.
        kind: a name of `IMAGE_KINDS`, a hyphen and a level from 1 to 3.
        row_id: the random numbers depend on it, on the kind and on the seed alone.
        seed: another one gives other random numbers.

    Raises:
        ConfigurationError: the kind is not known.
    """
    name, _, level = kind.rpartition("-")
    if name not in IMAGE_KINDS or level not in map(str, LEVELS):
        raise ConfigurationError(
            f"The kind of variant is {abbreviated(kind)}. Set a kind of picture and a level from 1 to 3: "
            f"{', '.join(f'{each}-1' for each in IMAGE_KINDS)}."
        )
    return IMAGE_KINDS[name](image.convert("RGB"), int(level), random_of(row_id, kind, seed))


def question_drawn(image: Image.Image, question: str, font_file: str | None = None) -> Image.Image | None:
    """Return the picture in RGB with the question below it, black on white, or None if the font lacks a sign of it.

    The text takes about `DRAWN_SHARE` of the picture's height, and more where it would be smaller than
    `SMALLEST_TEXT`.

    Args:
        image: of any mode.
        question: the text, broken between words into lines.
        font_file: a TrueType or OpenType font. None is Pillow's own, which has ASCII and few other signs.

    Raises:
        OSError: the font cannot be read.
    """
    image, width = image.convert("RGB"), image.width
    margin = max(2, width // 50)
    font = _font(font_file, SMALLEST_TEXT)
    unknown = bytes(font.getmask("\uffff"))
    if any(bytes(font.getmask(sign)) == unknown for sign in {*question} if not sign.isspace()):
        return None
    pen = ImageDraw.Draw(image)

    def laid_out(size: int) -> tuple[ImageFont.FreeTypeFont, str, int, int]:
        font = _font(font_file, size)
        text = "\n".join(_wrapped(question, font, max(width - 2 * margin, 4 * size)))
        right, bottom = pen.multiline_textbbox((0, 0), text, font)[2:]
        return font, text, int(right) + 2 * margin, int(bottom) + 2 * margin

    def is_too_large(size: int) -> bool:
        _, _, right, bottom = laid_out(size)
        return right > width or bottom > DRAWN_SHARE * image.height

    sizes = range(SMALLEST_TEXT, max(SMALLEST_TEXT, int(DRAWN_SHARE * image.height)) + 1)
    font, text, right, bottom = laid_out(sizes[max(0, bisect_left(sizes, True, key=is_too_large) - 1)])
    page = Image.new("RGB", (max(width, right), image.height + bottom), "white")
    page.paste(image)
    ImageDraw.Draw(page).multiline_text((margin, image.height + margin), text, "black", font)
    return page


def _font(file: str | None, size: int) -> ImageFont.FreeTypeFont:
    # Without FreeType Pillow's own font has one size; its wheels have FreeType.
    return ImageFont.truetype(file, size) if file else cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Return the lines of `text`, broken between words so that none is wider than `width` pixels, if words allow."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}".strip()
            if line and font.getlength(longer) > width:
                lines, line = [*lines, line], word
            else:
                line = longer
        lines.append(line)
    return lines


def random_of(row_id: str, kind: str, seed: int = 0) -> np.random.Generator:
    """Return a generator whose numbers depend on the row's id, the kind and the seed alone."""
    words = hashlib.sha256(f"{row_id}\0{kind}\0{seed}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(words[:16], "little")))


def _rotated(image: Image.Image, level: int, random: np.random.Generator) -> Image.Image:
    """Turn the picture to either side, made smaller so that all of it stays; around it is its border's mean colour."""
    degrees = random.uniform(*DEGREES[level]) * random.choice([-1.0, 1.0])
    pixels = np.asarray(image)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    colour = tuple(np.rint(border.mean(axis=0)).astype(int).tolist())
    turned = image.rotate(degrees, resample=Image.Resampling.BICUBIC, expand=True, fillcolor=colour)
    return ImageOps.pad(turned, image.size, Image.Resampling.BICUBIC, color=colour)


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

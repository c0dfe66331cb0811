"""Variants of a picture: harder to read, with the same answer.

Each is a pure function of the picture, the kind, the row's id and a seed: the same to the byte with the same Pillow
and numpy. The code that DIVA-GRPO released is not copied: its rotation takes the strength as degrees, and its noise
swaps the colour channels and leaves out two thirds of the picture.
"""

import hashlib
from bisect import bisect_left

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

LEVELS = (1, 2, 3)
DEGREES = {1: (5.0, 8.0), 2: (8.0, 13.0), 3: (13.0, 20.0)}
GAUSSIAN = {1: 0.05, 2: 0.10, 3: 0.15}  # standard deviation on a scale of 0 to 1
SALT_PEPPER = {1: 0.01, 2: 0.03, 3: 0.06}  # share of the pixels
SPECKLE = {1: 0.10, 2: 0.20, 3: 0.30}  # standard deviation, times the pixel's value
BLUR = {1: 0.010, 2: 0.020, 3: 0.030}  # standard deviation over the shorter side
LOW_RESOLUTION = {1: 0.6, 2: 0.4, 3: 0.25}  # of both sides
DRAWN_SHARE = 0.22  # of the picture's height, that the drawn question may take
SMALLEST_TEXT = 10  # pixels; a longer question takes more of the height


def changed_image(image, kind, row_id, seed=0):
    """Return the picture as `kind`, such as `rotation-2`, makes it, in RGB and of the same size."""
    name, _, level = kind.rpartition("-")
    words = hashlib.sha256(f"{row_id}\0{kind}\0{seed}".encode()).digest()
    random = np.random.Generator(np.random.Philox(key=int.from_bytes(words[:16], "little")))
    return IMAGE_KINDS[name](image.convert("RGB"), int(level), random)


def question_drawn(image, question, font_file=None):
    """Return the picture in RGB with the question below it, black on white, or None if the font lacks a sign of it.

    The text takes about `DRAWN_SHARE` of the picture's height, and more where it would be smaller than
    `SMALLEST_TEXT`. `font_file` is a TrueType font; None is Pillow's own, which has ASCII and few other signs.
    """
    image, width = image.convert("RGB"), image.width
    margin = max(2, width // 50)
    font = _font(font_file, SMALLEST_TEXT)
    unknown = bytes(font.getmask("\uffff"))
    if any(bytes(font.getmask(sign)) == unknown for sign in {*question} if not sign.isspace()):
        return None
    pen = ImageDraw.Draw(image)

    def laid_out(size):
        font = _font(font_file, size)
        text = "\n".join(_wrapped(question, font, max(width - 2 * margin, 4 * size)))
        right, bottom = pen.multiline_textbbox((0, 0), text, font)[2:]
        return font, text, int(right) + 2 * margin, int(bottom) + 2 * margin

    def is_too_large(size):
        _, _, right, bottom = laid_out(size)
        return right > width or bottom > DRAWN_SHARE * image.height

    sizes = range(SMALLEST_TEXT, max(SMALLEST_TEXT, int(DRAWN_SHARE * image.height)) + 1)
    font, text, right, bottom = laid_out(sizes[max(0, bisect_left(sizes, True, key=is_too_large) - 1)])
    page = Image.new("RGB", (max(width, right), image.height + bottom), "white")
    page.paste(image)
    ImageDraw.Draw(page).multiline_text((margin, image.height + margin), text, "black", font)
    return page


def _font(file, size):
    return ImageFont.truetype(file, size) if file else ImageFont.load_default(size)


def _wrapped(text, font, width):
    """Return the lines of `text`, broken between words so that none is wider than `width` pixels, if words allow."""
    lines = []
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


def _rotated(image, level, random):
    """Turn the picture to either side, made smaller so that all of it stays; around it is its border's mean colour."""
    degrees = random.uniform(*DEGREES[level]) * random.choice([-1.0, 1.0])
    pixels = np.asarray(image)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    colour = tuple(np.rint(border.mean(axis=0)).astype(int).tolist())
    turned = image.rotate(degrees, resample=Image.Resampling.BICUBIC, expand=True, fillcolor=colour)
    return ImageOps.pad(turned, image.size, Image.Resampling.BICUBIC, color=colour)


def _gaussian(image, level, random):
    values = _values(image)
    return _picture(values + random.normal(0.0, GAUSSIAN[level], values.shape))


def _salt_pepper(image, level, random):
    """Make single pixels black or white, in all channels at once."""
    values = _values(image)
    hit = random.random(values.shape[:2]) < SALT_PEPPER[level]
    values[hit] = random.integers(0, 2, int(hit.sum()))[:, None]
    return _picture(values)


def _speckle(image, level, random):
    values = _values(image)
    return _picture(values * (1.0 + random.normal(0.0, SPECKLE[level], values.shape)))


def _blurred(image, level, random):
    return image.filter(ImageFilter.GaussianBlur(max(0.5, BLUR[level] * min(image.size))))


def _low_resolution(image, level, random):
    small = [max(1, round(side * LOW_RESOLUTION[level])) for side in image.size]
    return image.resize(small, Image.Resampling.BICUBIC).resize(image.size, Image.Resampling.BICUBIC)


def _values(image):
    return np.asarray(image, dtype=np.float64) / 255.0


def _picture(values):
    return Image.fromarray(np.rint(np.clip(values, 0.0, 1.0) * 255.0).astype(np.uint8))


IMAGE_KINDS = {
    "rotation": _rotated,
    "gaussian": _gaussian,
    "salt-pepper": _salt_pepper,
    "speckle": _speckle,
    "blur": _blurred,
    "low-resolution": _low_resolution,
}
"""By name, the changes of a picture. Each takes the picture in RGB, a level from 1 to 3 and a generator."""

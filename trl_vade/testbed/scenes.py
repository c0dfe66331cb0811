"""Four families of questions about pictures, with three levels each; level 3 combines the skills of levels 1 and 2.

| task   | level 1               | level 2                    | level 3                            |
| ------ | --------------------- | -------------------------- | ---------------------------------- |
| count  | all shapes (1-9)      | one colour of two (1-6)    | one colour of four (1-6)           |
| chart  | height of a bar (1-9) | sum of two bars (2-12)     | sum of three bars (3-18)           |
| math   | read a digit (0-9)    | sum of two digits (0-10)   | product of two digits (4-49)       |
| colour | of one shape (8)      | of both of two (56)        | of two of four (56)                |

Answers are drawn first, evenly over their range, and the scene is drawn to fit. A guess succeeds less than one time in
four, also if it names a thing in the picture. Without anti-aliasing and font files the same calls give the same bytes.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

SIZE = 56  # the side of an image in pixels: four patches of 14, merged two by two into 2 x 2 = 4 image tokens
CELL = 14  # the side of a vision patch in pixels; each counted shape has a patch of its own
COLOURS: dict[str, tuple[int, int, int]] = {
    **{"red": (230, 25, 30), "green": (20, 160, 50), "blue": (30, 60, 230), "yellow": (250, 225, 20)},
    **{"orange": (250, 130, 10), "purple": (135, 30, 160), "black": (10, 10, 10), "cyan": (40, 210, 230)},
}
SHAPES = ("square", "circle", "triangle")
BACKGROUND = (255, 255, 255)
AXIS = (150, 150, 150)

# Digits of five columns by seven rows, drawn by hand, since Pillow's default font changes between releases.
GLYPHS = (
    (" ### ", "#   #", "#   #", "#   #", "#   #", "#   #", " ### "),
    ("  #  ", " ##  ", "  #  ", "  #  ", "  #  ", "  #  ", " ### "),
    (" ### ", "#   #", "    #", "  ## ", " #   ", "#    ", "#####"),
    (" ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### "),
    ("   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "),
    ("#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "),
    (" ### ", "#    ", "#    ", "#### ", "#   #", "#   #", " ### "),
    ("#####", "    #", "   # ", "   # ", "  #  ", "  #  ", "  #  "),
    (" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "),
    (" ### ", "#   #", "#   #", " ####", "    #", "    #", " ### "),
)


def blank() -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return a white RGB canvas of 56 x 56 pixels and its pen."""
    image = Image.new("RGB", (SIZE, SIZE), BACKGROUND)
    return image, ImageDraw.Draw(image)


def shape(pen: ImageDraw.ImageDraw, kind: str, colour: str, left: int, top: int, side: int) -> None:
    """Draw a filled shape of `side` pixels with the top left corner of its bounding box at (`left`, `top`)."""
    right, bottom = left + side - 1, top + side - 1
    ink = COLOURS[colour]
    if kind == "square":
        pen.rectangle((left, top, right, bottom), fill=ink)
    elif kind == "circle":
        pen.ellipse((left, top, right, bottom), fill=ink)
    else:
        pen.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=ink)


def digit(pen: ImageDraw.ImageDraw, value: int, colour: str, left: int, top: int, scale: int) -> None:
    """Draw the digit `value` (0 to 9) as a 5 x 7 bitmap, each dot `scale` pixels wide."""
    for row, line in enumerate(GLYPHS[value]):
        for column, dot in enumerate(line):
            if dot == "#":
                x, y = left + column * scale, top + row * scale
                pen.rectangle((x, y, x + scale - 1, y + scale - 1), fill=COLOURS[colour])


TASKS = ("count", "chart", "math", "colour")
LEVELS = (1, 2, 3)
SIDES = ("left", "right")
CORNERS = ("top left", "top right", "bottom left", "bottom right")
COUNT_QUESTION, COLOUR_QUESTION = "How many shapes are there?", "What colour is the shape?"
_SUM = "What is the sum of the"
BAR_QUESTIONS = ("What is the value of the bar?", f"{_SUM} two bars?", f"{_SUM} three bars?")
DIGIT_QUESTIONS = ("Which digit is this?", f"{_SUM} two digits?", "What is the product of the two digits?")

JITTER = 2  # the largest shift of a digit from its place, in pixels, in each direction
INKS = ("black", "blue", "purple", "red", "green")
"""The dark colours, for everything that is counted, measured or read. The colour family uses all eight."""
BAR_UNIT = 5  # the pixels of bar height for each unit of value
BAR_FLOOR = 52  # the pixel row of the axis below the bars


@dataclass(frozen=True)
class Scene:
    """A picture, a question about it, and the answer as text."""

    task: str
    level: int
    question: str
    answer: str
    image: Image.Image


def draw_scene(task: str, level: int, rng: np.random.Generator) -> Scene:
    """Draw one scene of a family and level, determined by the arguments and the state of `rng`."""
    return Scene(task, level, *_FAMILIES[task](level, rng))


def _integer(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def _some(rng: np.random.Generator, names: tuple[str, ...], k: int) -> list[str]:
    return [names[i] for i in rng.permutation(len(names))[:k]]


def _addends(rng: np.random.Generator, k: int, low: int, high: int) -> list[int]:
    """Draw `k` numbers from `low` to `high` with a uniformly distributed sum, so that every guess is equally good."""
    total = _integer(rng, k * low, k * high)
    while True:
        values = rng.integers(low, high + 1, size=k)
        if values.sum() == total:
            return [int(value) for value in values]


def _count(level: int, rng: np.random.Generator) -> tuple[str, str, Image.Image]:
    colours = _some(rng, INKS, (1, 2, 4)[level - 1])
    target = _integer(rng, 1, 9 if level == 1 else 6)
    numbers = [target] + [_integer(rng, 1, 6 if level == 2 else 3) for _ in colours[1:]]
    image, pen = blank()
    cells = iter(rng.permutation(16))
    for colour, number in zip(colours, numbers, strict=True):
        for _ in range(number):
            row, column = divmod(int(next(cells)), 4)
            side = _integer(rng, 10, 11)
            # A margin of one pixel inside the patch keeps shapes from touching.
            left, top = (CELL * at + _integer(rng, 1, 13 - side) for at in (column, row))
            shape(pen, SHAPES[_integer(rng, 0, 2)], colour, left, top, side)
    question = COUNT_QUESTION if level == 1 else f"How many {colours[0]} shapes are there?"
    return question, str(target), image


def _chart(level: int, rng: np.random.Generator) -> tuple[str, str, Image.Image]:
    values = [_integer(rng, 1, 9)] if level == 1 else _addends(rng, level, 1, 6)
    image, pen = blank()
    pen.line((1, BAR_FLOOR, 54, BAR_FLOOR), fill=AXIS)
    slots = sorted(int(slot) for slot in rng.permutation(3)[:level])
    for slot, value, colour in zip(slots, values, _some(rng, INKS, level), strict=True):
        width = _integer(rng, 11, 13)
        left, top = 2 + 18 * slot + _integer(rng, 0, 14 - width), BAR_FLOOR - BAR_UNIT * value
        pen.rectangle((left, top, left + width - 1, BAR_FLOOR - 1), fill=COLOURS[colour])
    return BAR_QUESTIONS[level - 1], str(sum(values)), image


def _math(level: int, rng: np.random.Generator) -> tuple[str, str, Image.Image]:
    if level == 1:
        values = [_integer(rng, 0, 9)]
    else:
        values = _addends(rng, 2, 0, 5) if level == 2 else [_integer(rng, 2, 7), _integer(rng, 2, 7)]
    image, pen = blank()
    for at, value in enumerate(values):
        # A digit is 20 x 28 pixels, in the middle of its half or of the canvas, up to JITTER.
        middle = 18 if level == 1 else 4 + 28 * at
        left, top = middle + _integer(rng, -JITTER, JITTER), 14 + _integer(rng, -JITTER, JITTER)
        digit(pen, value, INKS[_integer(rng, 0, len(INKS) - 1)], left, top, 4)
    answer = int(np.prod(values)) if level == 3 else sum(values)
    return DIGIT_QUESTIONS[level - 1], str(answer), image


def _colour(level: int, rng: np.random.Generator) -> tuple[str, str, Image.Image]:
    image, pen = blank()
    kinds = [SHAPES[_integer(rng, 0, 2)] for _ in CORNERS]
    if level == 1:
        colour = _some(rng, tuple(COLOURS), 1)[0]
        side = _integer(rng, 22, 34)
        left, top = _integer(rng, 1, 55 - side), _integer(rng, 1, 55 - side)
        shape(pen, kinds[0], colour, left, top, side)
        return COLOUR_QUESTION, colour, image
    # Level 2 asks for both halves. Level 3 asks for two of four corners with four colours.
    places = SIDES if level == 2 else CORNERS
    colours = _some(rng, tuple(COLOURS), len(places))
    for place, (kind, colour) in enumerate(zip(kinds, colours, strict=False)):
        side = _integer(rng, 17, 24)
        left = 28 * (place % 2) + _integer(rng, 1, 27 - side)
        top = 28 * (place // 2) + _integer(rng, 1, 27 - side) + (14 if level == 2 else 0)
        shape(pen, kind, colour, left, top, side)
    first, second = (int(place) for place in rng.permutation(len(places))[:2])
    question = f"What colours are the {places[first]} shape and the {places[second]} shape?"
    return question, f"{colours[first]} {colours[second]}", image


_FAMILIES = dict(zip(TASKS, (_count, _chart, _math, _colour), strict=True))

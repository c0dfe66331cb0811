"""The shapes and digits of the testbed's scenes, drawn flat on a white canvas of 56 x 56 pixels.

Without anti-aliasing and font files the same calls give the same bytes everywhere.
"""

from PIL import Image, ImageDraw

SIZE = 56  # the side of an image in pixels: four patches of 14, merged two by two into 2 x 2 = 4 image tokens
CELL = 14  # the side of a vision patch in pixels; each counted shape has a patch of its own
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (230, 25, 30),
    "green": (20, 160, 50),
    "blue": (30, 60, 230),
    "yellow": (250, 225, 20),
    "orange": (250, 130, 10),
    "purple": (135, 30, 160),
    "black": (10, 10, 10),
    "cyan": (40, 210, 230),
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

"""Picture files in Pillow's modes and formats, as a data set holds them."""

from io import BytesIO

import datasets
from PIL import Image


def file_of(image, format="PNG", **options):
    file = BytesIO()
    image.save(file, format, **options)
    return {"bytes": file.getvalue(), "path": None}


def gradient(mode="RGB", size=(23, 17)):
    return Image.linear_gradient("L").resize(size).convert(mode)


def turned():
    """A JPEG whose EXIF data say that it lies on its side."""
    exif = Image.Exif()
    exif[Image.ExifTags.Base.Orientation] = 6
    return file_of(gradient(), "JPEG", exif=exif)


def as_decoded(file):
    return datasets.Image().decode_example(file)


MODES = [file_of(gradient(mode)) for mode in ("RGB", "L", "RGBA", "P", "1", "LA")]
FORMATS = [file_of(gradient(), format) for format in ("JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM")]

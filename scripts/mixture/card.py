"""Render the data set card of a mixture, and a page with examples, from its manifest."""

import base64
import hashlib
from io import BytesIO
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from PIL import Image

from trl_vade.files import packaged

from .rows import DROPPED, Row

EXAMPLES = 3
"""Rows of each source on the page."""

THUMBNAIL = 240  # pixels of the longer side


def render_card(manifest: dict[str, Any]) -> str:
    """Render README.md from the `manifest` that `build.build_mixture` returns."""
    digest = hashlib.sha256("".join(sorted(manifest["files"].values())).encode()).hexdigest()
    return _render("mixture.md", manifest=manifest, digest=digest)


def render_page(manifest: dict[str, Any], rows: list[list[Row]]) -> str:
    """Render `mixture.html`: counts, reasons and three examples of each source, whose `rows` are given in order.

    The page holds its pictures, and every text of a row is escaped.
    """
    sources = [
        source | {"examples": [row | {"picture": _thumbnail(row["images"][0]["bytes"])} for row in some[:EXAMPLES]]}
        for source, some in zip(manifest["sources"], rows, strict=True)
    ]
    return _render("mixture.html", manifest=manifest, sources=sources)


def _render(name: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(packaged("model_cards")),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(values, reasons=DROPPED)


def _thumbnail(content: bytes) -> str:
    """Return a small copy of a picture as a data address."""
    with Image.open(BytesIO(content)) as image:
        small = Image.new("RGB", image.size, "white")
        opaque = image.convert("RGBA")
        small.paste(opaque, mask=opaque.getchannel("A"))
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"

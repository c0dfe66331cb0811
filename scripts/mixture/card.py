"""Render the data set card of a mixture, and a page with examples, from its manifest."""

import base64
import hashlib
from io import BytesIO
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from trl_vade.files import packaged

from .rows import DROPPED, Row

EXAMPLES = 3
"""Rows of each source on the page."""

THUMBNAIL = 240  # pixels of the longer side


def render_card(manifest: dict[str, Any]) -> str:
    """Render README.md from the `manifest` that `build.build_mixture` returns."""
    total = sum(manifest["splits"].values())
    data = DatasetCardData(
        language=["en"],
        license="other",
        license_name="one-for-each-source",
        license_link="README.md",
        task_categories=["visual-question-answering"],
        size_categories=["1K<n<10K" if total >= 1000 else "n<1K"],
        source_datasets=sorted({source["repo"] for source in manifest["sources"]}),
        pretty_name="VADE training mixture",
        tags=["grpo", "trl", "trl-vade"],
        configs=[
            {
                "config_name": "default",
                # datasets 5.2 caches a local folder by its last name and these entries, and not by its files. Without
                # a digest of the files here, `load_dataset` would return the rows of an earlier build.
                "description": hashlib.sha256("".join(sorted(manifest["files"].values())).encode()).hexdigest(),
                "data_files": [{"split": split, "path": f"data/{split}-*"} for split in sorted(manifest["splits"])],
            }
        ],
    )
    template = str(packaged("model_cards") / "mixture.md")
    card = DatasetCard.from_template(data, template_path=template, manifest=manifest, total=total, reasons=DROPPED)
    return str(card)


def render_page(manifest: dict[str, Any], rows: list[list[Row]]) -> str:
    """Render `mixture.html`: counts, reasons and three examples of each source, whose `rows` are given in order.

    The page holds its pictures, and every text of a row is escaped.
    """
    loader = FileSystemLoader(packaged("model_cards"))
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("mixture.html")
    sources = [
        source | {"examples": [row | {"picture": _thumbnail(row["images"][0]["bytes"])} for row in some[:EXAMPLES]]}
        for source, some in zip(manifest["sources"], rows, strict=True)
    ]
    return template.render(manifest=manifest, sources=sources, reasons=DROPPED)


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

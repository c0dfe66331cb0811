"""A drawing as SVG text for the inside of an HTML page, in the colours of the page."""

import html
import io
import re

from matplotlib.figure import Figure

from .palette import LIGHT

_PARTS = {colour: part for part, colour in LIGHT.items()}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Return the figure as one `<svg>` element; `label` tells what it shows to those who cannot see it.

    Each colour of the palette is a CSS variable, such as `var(--first)`, with the light colour where a page has none.
    The ids begin with `name`, so several elements can stand in one page. The letters are those of the page.
    """
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata=_NO_METADATA)
    text = written.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)  # it is for all tags
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: _variable(found[0]), text)
    text = text.replace("'DejaVu Sans'", "system-ui, sans-serif")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    style = "stroke-linejoin: round; stroke-linecap: butt"
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" style="{style}" ', 1)


def _variable(colour: str) -> str:
    return f"var(--{_PARTS[colour]}, {colour})" if colour in _PARTS else colour

"""The steps that the card of a posterior's repository names. The card is not trusted."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trl_vade.errors import SnapshotCorruptError

from .repository import LATEST, steps_in

MOST_BYTES = 2**20
"""Bytes of a card to read. Its metadata come first and take about 200 bytes for each step."""
MOST_LEVELS = 16
"""Depth of nested lists and mappings; `configs` needs 5."""

# It reads every value as a text: no dates, no merged mappings. The C version is used if PyYAML has it.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def steps_of_card(card: Path | None) -> tuple[list[int], int | None]:
    """Return the steps that the card's configurations name, and the step of the default one or None.

    Raises:
        SnapshotCorruptError: the metadata are longer or deeper than those of any posterior, or use aliases. With
            aliases, a few lines could expand to more than the memory holds.
    """
    configs = _configs(card) if card else None
    steps: list[int] = []
    newest = None
    for config in configs if isinstance(configs, list) else []:
        if isinstance(config, dict):
            found = steps_in(_texts(config.get("data_files")))
            steps += found
            default = str(config.get("default")).lower() in ("true", "yes", "on")
            if found and (default or (newest is None and config.get("config_name") == LATEST)):
                newest = found[-1]
    return sorted(set(steps)), newest


def _configs(card: Path) -> Any:
    with card.open("rb") as file:
        content = file.read(MOST_BYTES)
    if not re.match(rb"\s*---", content):
        return None
    block = re.match(rb"\s*---[ \t]*\r?\n(.*?)\r?\n---", content, re.DOTALL)
    if block is None:
        if len(content) == MOST_BYTES:
            raise SnapshotCorruptError(f"{card}: its metadata do not end within {MOST_BYTES:,} bytes.")
        return None
    try:
        text = block[1].decode()
        wrong = _not_plain(text)
        metadata = None if wrong else yaml.load(text, Loader=_LOADER)
    except (yaml.YAMLError, ValueError):  # not a card of trl_vade
        return None
    if wrong:
        raise SnapshotCorruptError(
            f"{card}: its metadata have {wrong}, which no card of a posterior has. Pass the table of a step instead "
            "of the folder, or take another copy."
        )
    return metadata.get("configs") if isinstance(metadata, dict) else None


def _not_plain(text: str) -> str:
    """Return what is wrong with the metadata, from the parser's events, before any object is built."""
    level = 0
    for event in yaml.parse(text, Loader=_LOADER):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            return f"more than {MOST_LEVELS} lists inside each other"
        if isinstance(event, yaml.AliasEvent):
            return "aliases"
    return ""


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts inside lists and dicts. `data_files` has several forms."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)

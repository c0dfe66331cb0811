"""The kinds of variants, and for which rows each is safe: its answer must stay right."""

import re
from collections.abc import Mapping

from trl_vade.data.image_variants import IMAGE_KINDS, LEVELS
from trl_vade.errors import ConfigurationError

MOST_HINTS = 9

ORIENTATION = re.compile(
    r"\b(?:left(?!\s+over)|right(?![\s-]*(?:angled?|triangle|isosceles|answer|choice|option|prism|cone|pyramid)s?\b)|top|bottom"
    r"|above|below|upper\w*|lower\w*|upwards?|downwards?|uphill|downhill|north\w*|south\w*|eastw?\w*|west\w*|horizontal\w*"
    r"|vertical\w*|clock\w*|o'clock|direction\w*|rotat\w*|tilt\w*|slope\w*|upright|orient\w*|what time)\b",
    re.IGNORECASE,
)
"""Words of questions and answers that a rotated picture could make wrong."""

TEXT_IN_PICTURE = {
    *("chartqa", "figureqa", "tabmwp", "scienceqa", "ai2d"),  # of the mixture
    *("geo3k", "geo170k", "geos", "geoqa_plus", "geometry3k"),
    *("math",),  # of the testbed
}
"""Tasks whose pictures hold small text, which blur and a low resolution could make unreadable for anyone."""


def read_kinds(names: list[str]) -> list[str]:
    """Return the kinds, each once, in their order.

    Raises:
        ConfigurationError: there are none, or one is not known.
    """
    known = {f"{name}-{level}" for name in IMAGE_KINDS for level in LEVELS}
    known |= {"drawn", "text"} | {f"hint-{level}" for level in range(1, MOST_HINTS + 1)}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ConfigurationError(
            f"--kinds {','.join(names)}: {unknown[0] if unknown else 'nothing'} is no kind of variant. The kinds are "
            f"text, drawn, hint-1 to hint-{MOST_HINTS}, and {', '.join(IMAGE_KINDS)} with a level from -1 to -3."
        )
    return list(dict.fromkeys(names))


def read_safe_for(texts: list[str]) -> dict[str, set[str]]:
    """Return the tasks by kind of options such as `rotation=count,chart`.

    Raises:
        ConfigurationError: one is not of this form.
    """
    families = {"text", "drawn", "hint", *IMAGE_KINDS}
    pairs = [text.partition("=") for text in texts]
    wrong = [
        text for text, (family, _, tasks) in zip(texts, pairs, strict=True) if family not in families or not tasks
    ]
    if wrong:
        raise ConfigurationError(
            f"--safe_for {wrong[0]}: write KIND=TASK,TASK or KIND=all. KIND is one of {', '.join(sorted(families))}, "
            "without a level."
        )
    return {family: {*tasks.split(",")} for family, _, tasks in pairs}


def family_of(kind: str) -> str:
    """Return a kind without its level."""
    return re.sub(r"-\d+$", "", kind)


def level_of(kind: str) -> int:
    """Return the level of a kind that has one."""
    return int(kind.rpartition("-")[2])


def why_unsafe(kind: str, task: str | None, texts: str, safe_for: Mapping[str, set[str]]) -> str | None:
    """Return why a kind of variant could make the answer of a row wrong, or None.

    Args:
        kind: with its level.
        task: of the row.
        texts: the question, the choices and the answer.
        safe_for: tasks by kind, in place of the rules here; `all` is every task.
    """
    family = family_of(kind)
    if family in safe_for:
        return None if safe_for[family] & {task, "all"} else "not safe for the task"
    if family == "rotation" and ORIENTATION.search(texts):
        return "the orientation matters"
    if family in ("blur", "low-resolution") and str(task) in TEXT_IN_PICTURE:
        return "text in the picture"
    return None

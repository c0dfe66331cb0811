"""Secrets among the settings of a run: refused before a model is loaded, and hidden in what is written for people."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError

HIDDEN = "***"
_OF_TEXT = (
    *("eos", "bos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio", "vision", "stop", "start", "end"),
    *("special", "first", "last", "next", "think", "tool", "call", "begin", "per", "a", "the"),
)
"""What comes before "token" in names that are no secrets: eos_token."""
_TOKEN = "".join(rf"(?<!\b{word}[ _-])(?<!_{word}[ _-])" for word in _OF_TEXT) + "token"
_NAME = rf"(?:{_TOKEN}|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|secret|passw(?:or)?d|pwd|authorization)"
_NO_VALUE = r"(?!(?:\$\{?\w+\}?|empty|none|null|true|false)(?![\w.-]))"  # a variable's name, or nothing
_SECRETS = (
    r"(://)(?!git@)[^/@\s]+(?=@)",  # the login in an address
    r"([?&](?:[\w-]*[_-])?(?:sig|signature|key)=)[^\s\"'&]+",
    r"(?<![^\W_])(hf_)[^\W_]{20,}",
    r"(?<![^\W_])((?:sk|glpat|xox[abprs])-|(?:sk_live|github_pat|gh[opsu])_)(?:[a-z0-9]+-)*(?=[a-z_]*\d)\w{16,}",
    r"(?<![^\W_])(AKIA|ASIA|AIza)[\w-]{16,}",
    r"(?<![^\W_])(eyJ)[\w-]{10,}\.[\w-]{10,}\.[\w-]*",
    r"(-----BEGIN [A-Z ]*PRIVATE KEY).*",
    r"(\b(?:bearer|basic)\s+)(?=(?-i:\S*[\d=]|\S*[a-z]\S*[A-Z]))[\w+/.~-]{8,}=*",
    rf"({_NAME}[\"']?\s*[=:]\s*[\"']?){_NO_VALUE}[^\s\"'&,]+",
    rf"(--[\w-]*{_NAME}\s+[\"']?){_NO_VALUE}[^\s\"'&,]+",
)
"""The group is what stays."""
_PATTERNS = [re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in _SECRETS]
_NAMED = re.compile(rf"(?:^|.*[^a-z]){_NAME}", re.IGNORECASE)
_VALUE = re.compile(_NO_VALUE + r"\s*\S", re.IGNORECASE)


def without_secrets(text: str, name: str = "") -> str:
    """Return the text with logins in addresses, tokens, keys and passwords replaced by `HIDDEN`.

    `name` is that of the setting: all of a `password` is hidden.
    """
    if _NAMED.fullmatch(name) and _VALUE.match(text):
        return HIDDEN
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def refuse_secrets(args: Any) -> None:
    """Raise a `ConfigurationError` if a setting holds a secret. The message names the setting, not the secret."""
    for name, value in vars(args).items():
        for place in _secrets_in(value, name, name):
            raise ConfigurationError(
                f"{place} holds what looks like a token, a key or a password. The Trainer saves all settings in "
                "training_args.bin and uploads this file with the model: everybody could read it. Remove it. For the "
                "Hub, set the environment variable HF_TOKEN or run `hf auth login`; give other services theirs by "
                "the environment, too."
            )


def _secrets_in(value: Any, name: str, place: str) -> Iterator[str]:
    """Yield the places of secrets in `value`, the setting or key `name`."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            shown = without_secrets(str(key))
            if shown != str(key):
                yield f"a name in {place}"
            yield from _secrets_in(part, str(key), f"{place}[{shown!r}]")
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from _secrets_in(part, name, place)
    elif isinstance(value, str | Path) and without_secrets(str(value), name) != str(value):
        yield place

"""Secrets among the settings of a run, hidden in what is written for people."""

import re

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

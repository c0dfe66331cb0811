"""The command line that started a process, as a person would type it again."""

import os
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import psutil

LAUNCHERS = {"accelerate", "deepspeed", "torchrun", "trl-vade"}
FAR = 3  # parents that may be parts of a launcher


def typed_words() -> list[str]:
    """Return the words of the command of this process, or of the launcher around it; none in a notebook.

    Call it early: a launcher may end before its processes do.
    """
    own = tidy(sys.orig_argv)
    with_launchers = [own, *filter(_launches, map(tidy, _parents()))]
    return [] if any("ipykernel" in word for word in own) else with_launchers[-1]


def tidy(words: Sequence[str]) -> list[str]:
    """Return the words of a command without the interpreter of an installed command, and without folders of tools."""
    if len(words) > 1 and Path(words[1]).is_absolute() and Path(words[1]).parent == Path(words[0]).parent:
        words = words[1:]  # a script of the environment, which its first line runs by Python
    return [os.path.basename(words[0]), *words[1:]] if words else []


def without_resume(words: Sequence[str]) -> list[str]:
    """Return the words without the option `--resume_from_checkpoint` and its value."""
    names = ("--resume_from_checkpoint", "--resume-from-checkpoint")
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if before not in names and word.split("=")[0] not in names]


def _launches(words: list[str]) -> bool:
    return bool(words) and (words[0] in LAUNCHERS or not {"torch.distributed.run", "trl_vade"}.isdisjoint(words))


def _parents() -> list[list[str]]:
    """Return the command lines of the nearest parents, as far as this user may read them."""
    try:
        return [parent.cmdline() for parent in islice(psutil.Process().parents(), FAR)]
    except psutil.Error:
        return []

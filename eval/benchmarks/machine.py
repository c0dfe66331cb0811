"""Where a figure was measured: the processor, the versions that decide the numbers, the commit."""

import functools
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import torch
import transformers


@functools.cache
def machine() -> dict[str, str]:
    """Return what a record names. Base policies differ between machines, so pairs are made within one machine."""
    return {
        "machine": processor(),
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}",
        "commit": commit(),
    }


def processor() -> str:
    """Return name, family and model of the processor where Linux tells them, else nothing."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    keys = ("model name", "cpu family", "model")
    names = [re.findall(rf"^{key}\s*: (.*)$", facts, re.MULTILINE)[:1] for key in keys]
    return " ".join(name for found in names for name in found)


def commit() -> str:
    """Return the commit, with a + if files have changed, or nothing outside of a clone."""
    if not shutil.which("git"):
        return ""
    git = ["git", "-C", str(Path(__file__).parent)]
    name, changed = (
        subprocess.run([*git, *command], capture_output=True, text=True).stdout.strip()
        for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "."))
    )
    return name + ("+" if changed else "")

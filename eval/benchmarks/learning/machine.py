"""Where a run was made. The base policy of a seed differs between machines, so pairs are made within one machine."""

import functools
import re
import subprocess
from pathlib import Path

import numpy as np
import torch
import transformers


@functools.cache
def machine() -> dict[str, str]:
    """Return the processor, the versions that decide the numbers, and the commit, with a + if changed."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    keys = ("model name", "cpu family", "model")
    names = [re.findall(rf"^{key}\s*: (.*)$", facts, re.MULTILINE)[:1] for key in keys]
    git = ["git", "-C", str(Path(__file__).parent)]
    commit, changed = (
        subprocess.run([*git, *command], capture_output=True, text=True).stdout.strip()
        for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "."))
    )
    return {
        "machine": " ".join(name for found in names for name in found),
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}",
        "commit": commit + ("+" if changed else ""),
    }

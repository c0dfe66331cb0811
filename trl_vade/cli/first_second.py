"""The first second of a training command: what it says, and what it keeps off the screen, before PyTorch is loaded."""

import os
import sys
import warnings

UNAVOIDABLE = [
    # TRL 1.16, and recipes for every transformers from 5.10 on, use names that transformers 5.23 has given up.
    (r"`gradient_checkpointing` is deprecated", FutureWarning, r"transformers\.training_args"),
    (r"`is_gradient_checkpointing` is deprecated", FutureWarning, r"transformers\.modeling_utils"),
]
"""Message, category and module of warnings of libraries that no setting of a user can end."""


def quieten() -> None:
    """Keep off the screen what no user can act on. Call it before the Hub's client is imported, which reads this."""
    for message, category, module in UNAVOIDABLE:
        warnings.filterwarnings("ignore", message=message, category=category, module=module)
    # A bar in a file is one line of a hundred states, and each process would have one.
    if not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # of transformers, too
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


def begin() -> None:
    """Say that the libraries are loaded now."""
    if "LOCAL_RANK" not in os.environ:  # else the launcher around this process has said so
        print("loading PyTorch, transformers and TRL ...", file=sys.stderr, flush=True)

"""The first and the last second of a training command: what it says before PyTorch is loaded, and how Ctrl-C ends it.

`python -m trl_vade.cli.start` is `trl-vade train`, for a launcher.
"""

import os
import sys
import warnings

INTERRUPTED = 130  # the exit code of shells after Ctrl-C

UNAVOIDABLE = [
    # TRL 1.16 asks transformers 5.23 by a name that it has given up.
    (r"`is_gradient_checkpointing` is deprecated", FutureWarning, r"transformers\.modeling_utils"),
]
"""Message, category and module of warnings of libraries that no setting of a user can end."""


def start(arguments: list[str]) -> None:
    """Run `trl-vade train` with these arguments. Ctrl-C ends it with exit code 130, and without a traceback."""
    for message, category, module in UNAVOIDABLE:
        warnings.filterwarnings("ignore", message=message, category=category, module=module)
    # A bar in a file is one line of a hundred states, and each process would have one.
    if not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # of transformers, too
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    if "LOCAL_RANK" not in os.environ:  # else the launcher around this process has said so
        print("loading PyTorch, transformers and TRL ...", file=sys.stderr, flush=True)
    try:
        from .train import run

        run(arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    start(sys.argv[1:])

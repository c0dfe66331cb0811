"""The process that compares expressions by math-verify: it answers JSON lines `[reference, answer]`.

It is run as a file and imports nothing of this package. Each pair has limits of the kernel on CPU seconds and memory:
`9^{9^{9^9}}` is one call into C that no Python signal handler, as math-verify has one, and no thread can interrupt.
"""

import functools
import json
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

CPU_SECONDS = 1.0
MEMORY_BYTES = 2 << 30  # beyond what the process takes at its start

_NAMES = re.compile(r"(?<![\\A-Za-z])(pi|sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan)(?![A-Za-z])")
_SYMBOLS = {"π": r"\pi ", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "−": "-", "°": r"^\circ ", "∞": r"\infty "}
_SYMBOLS |= {"≤": r"\le ", "≥": r"\ge ", "**": "^", "α": r"\alpha ", "β": r"\beta ", "θ": r"\theta "}
_SYMBOLS |= {"∪": r"\cup ", "±": r"\pm "}


def as_latex(text: str) -> str:
    r"""Return plain notation such as `2*sqrt(3)`, `2√3` and `pi/2` as the parser's LaTeX."""
    text = re.sub(r"(?:(?<![\\A-Za-z])sqrt|√)\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*(\d+|[A-Za-z])", r"\\sqrt{\1}", text)
    for symbol, latex in _SYMBOLS.items():
        text = text.replace(symbol, latex)
    return _NAMES.sub(r"\\\1", text)


@functools.lru_cache(maxsize=1024)  # a group has one reference
def read(text: str) -> list[Any]:
    """Parse a formula with math-verify; return [] if it cannot."""
    from math_verify import LatexExtractionConfig, parse

    # math-verify's parser for plain text is never used: it calls sympy's `parse_expr`, which is `eval`.
    return parse(
        f"${as_latex(text)}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )


def are_equal(reference: str, answer: str) -> bool | None:
    """Return whether math-verify finds both equal, or None if it cannot read the reference."""
    from math_verify import verify

    expected, given = read(reference), read(answer)
    return bool(given and verify(expected, given, timeout_seconds=None)) if expected else None


def guarded(pair: list[str]) -> bool | None:
    """Return `are_equal` of a pair under the timer; an answer that breaks the parser is not equal."""
    timer = getattr(signal, "setitimer", lambda *seconds: None)  # Windows has none; the parent's clock remains
    timer(getattr(signal, "ITIMER_PROF", 0), CPU_SECONDS)
    try:
        return are_equal(*pair)
    except (Exception, RecursionError, MemoryError):
        return False
    finally:
        timer(getattr(signal, "ITIMER_PROF", 0), 0.0)


def main() -> None:
    """Write "ready" once a true pair is found true under the limits, then answer each line of the standard input."""
    logging.disable(logging.CRITICAL)  # math-verify warns at each parse that its own limit is off
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the training process, which ends this one
    are_equal("1+1", "2")  # loads the modules, which may take a slow machine longer than CPU_SECONDS
    if sys.platform == "linux":  # the bound does nothing on macOS
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        bound = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        ready = guarded([r"\sqrt{12}", r"2\sqrt{3}"])
        os.write(1, b"ready\n" if ready else b"a true pair is not found equal within the limits\n")
        for line in sys.stdin:
            os.write(1, json.dumps(guarded(json.loads(line))).encode() + b"\n")
    except BrokenPipeError:  # the parent was killed
        pass


if __name__ == "__main__":
    main()

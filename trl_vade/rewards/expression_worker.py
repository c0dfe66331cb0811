"""The process `python -m trl_vade.rewards.expression_worker`: it answers JSON lines `[reference, answer]`.

math-verify compares a pair in a forked child with limits of the kernel on CPU seconds and memory. Weaker limits fail:
`9^{9^{9^9}}` is one call into C that no Python signal handler and no thread can interrupt. math-verify's own time
limit is such a handler and works only in a main thread. The parent, with sympy loaded, survives and forks the next
child in milliseconds.
"""

import functools
import json
import logging
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from typing import IO, Any

CPU_SECONDS = 1.0
MEMORY_BYTES = 2 << 30

_FUNCTIONS = re.compile(r"(?<![\\A-Za-z])(sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan)(?![A-Za-z])")
_SYMBOLS = {"π": r"\pi ", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "−": "-", "°": r"^\circ ", "∞": r"\infty "}
_SYMBOLS |= {"≤": r"\le ", "≥": r"\ge ", "**": "^", "α": r"\alpha ", "β": r"\beta ", "θ": r"\theta ", "∪": r"\cup "}


def as_latex(text: str) -> str:
    r"""Return plain notation such as `2*sqrt(3)`, `2√3` and `pi/2` as the parser's LaTeX."""
    text = re.sub(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*(\d+|[A-Za-z])", r"\\sqrt{\1}", text)
    for symbol, latex in _SYMBOLS.items():
        text = text.replace(symbol, latex)
    text = re.sub(r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi ", text)
    return _FUNCTIONS.sub(r"\\\1", text)


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


def are_equal(reference: str, answer: str) -> bool:
    """Return whether math-verify finds both equal; they are in LaTeX or plain notation."""
    from math_verify import verify

    expected, given = read(reference), read(answer)
    return bool(expected and given and verify(expected, given, timeout_seconds=None))


def guarded(pair: list[str]) -> bool:
    """Return `are_equal` of a pair under the timer; an answer that breaks the parser is not equal."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        return are_equal(*pair)
    except (Exception, RecursionError, MemoryError):
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


class Child:
    """A forked process that works on pairs, one after the other, until a pair ends it."""

    def __init__(self, work: Callable[[list[str]], bool]) -> None:
        request, self._write = os.pipe()
        self._read, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write)
            os.close(self._read)
            _serve(work, os.fdopen(request, "r"), os.fdopen(answer, "w"))
            os._exit(0)
        os.close(request)
        os.close(answer)
        self._answers = os.fdopen(self._read, "r")

    def ask(self, line: str) -> str:
        """Return the child's answer to a line, or "" if the line ended the child."""
        os.write(self._write, line.encode())
        return self._answers.readline()

    def bury(self) -> None:
        """Close the pipes of an ended child and reap its process."""
        os.close(self._write)
        self._answers.close()
        os.waitpid(self._pid, 0)


def _serve(work: Callable[[list[str]], bool], requests: IO[str], answers: IO[str]) -> None:
    # The default action of this signal ends the process, even inside C code.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in requests:
        answers.write(json.dumps(work(json.loads(line))) + "\n")
        answers.flush()


def main() -> None:
    """Print "ready", then answer each line of the standard input, with `null` for a pair that hit a limit."""
    logging.disable(logging.CRITICAL)  # math-verify warns at each parse that its own limit is off
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the training process, which ends this one
    are_equal("1+1", "2")  # loads the modules, which may take a slow machine longer than CPU_SECONDS
    print("ready", flush=True)
    child = None
    for line in sys.stdin:
        child = child or Child(guarded)
        verdict = child.ask(line)
        if not verdict:
            child.bury()
            child = None
        print(verdict.strip() or "null", flush=True)


if __name__ == "__main__":
    main()

"""Random damage to the posterior and the selection log of a run.

    python -m eval.benchmarks.faults.fuzz --tries 10000 --seed 0

Whatever is read either loads exactly or is refused with an exception of trl_vade's own. A try is lost when it raises
anything else, warns, takes more than `LIMIT` seconds, or gives a state that differs. Files are damaged in two ways:

    as they are      the digests tell; what loads must be what was saved
    signed again     a file with right digests and wrong content, as another program could leave; what loads must be
                     what the file says, read here by other code, and the sampler must then work

Every try has a random generator of its own, so `dice(seed, case, number)` repeats a single one.
"""

import argparse
import tempfile
import time
from pathlib import Path

from .fuzz_files import fuzz_selection_logs, fuzz_snapshots
from .result import Result


def fuzz_everything(tries: int, seed: int, directory: Path) -> list[Result]:
    """Divide `tries`: most go to the snapshots."""
    logs = tries // 4
    return [
        fuzz_snapshots(tries - logs, seed, directory / "snapshots"),
        fuzz_selection_logs(logs, seed, directory / "logs"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=10_000, help="mutations in all")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        results = fuzz_everything(arguments.tries, arguments.seed, Path(directory))
    for result in results:
        print(f"{result.case}: {result.survived} of {result.tries} survived, {result.lost} lost ({result.note})")
    print(f"{time.monotonic() - start:.1f} s")
    raise SystemExit(any(result.lost for result in results))


if __name__ == "__main__":
    main()

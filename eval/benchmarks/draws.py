"""What does a draw cost, by the rows of the data set? The default rule, the paper's, and a bare redraw in numpy.

    python -m eval.benchmarks.draws      # 10,000, a million and ten million rows: five minutes, 8 GB

One row of a hundred was ever scored. Each size has the contenders in one process, in turns. `observe` takes the
outcomes of the rows just drawn; `save` and `load` are a snapshot on the disk. Prompts have one of five of the 128
features of the default rule's prior. The bare redraw holds alpha and beta alone, decays all rows in each step and
saves nothing.
"""

import argparse
import tempfile
import time

import numpy as np

from trl_vade import ThompsonSampler, load_snapshot, save_snapshot

BATCH, COMPLETIONS = 512, 8
DEFAULT = {"signal_aware_decay": True, "prior": "prompts"}


class Bare:
    """Equations 4 to 6 for all rows, and nothing else."""

    def __init__(self, num_rows):
        self.chance, (self.alpha, self.beta) = np.random.default_rng(0), np.zeros((2, num_rows))

    def draw(self, k):
        p = self.chance.beta(self.alpha + 1, self.beta + 1)
        best = np.argpartition(gain := p * (1 - p) ** 2, gain.size - k)[gain.size - k :]
        return best[np.argsort(-gain[best])]

    def observe(self, rows, right, trials):
        self.alpha *= (kept := np.where(np.isin(np.arange(self.alpha.size), rows), 0.2, 0.999))
        self.beta *= kept
        self.alpha[rows] += right
        self.beta[rows] += trials - right


def contenders(num_rows):
    some = np.packbits(np.random.default_rng(0).random((9_999, 128)) < 0.2, axis=1)
    words, epoch = some[np.arange(num_rows) % len(some)], max(num_rows // BATCH, 1)
    rests = {"cooldown": epoch // 2, "even_rest": epoch}
    return {
        "default": lambda: ThompsonSampler(num_rows, words=words, **DEFAULT, **rests),
        "paper": lambda: ThompsonSampler(num_rows),
        "numpy, bare": lambda: Bare(num_rows),
    }


def seconds(verb, *arguments):
    start = time.perf_counter()
    result = verb(*arguments)
    return time.perf_counter() - start, result


def measure(num_rows, repeats):
    """Yield the contender's name and, by verb, its seconds of each repeat; the first repeat is not counted."""
    made, rng = contenders(num_rows), np.random.default_rng(1)
    samplers, times = {name: make() for name, make in made.items()}, {name: {} for name in made}
    scored = rng.choice(num_rows, max(num_rows // 100, BATCH), replace=False)
    for sampler in samplers.values():
        sampler.observe(scored, rng.integers(0, COMPLETIONS + 1, scored.size), np.full(scored.size, COMPLETIONS))
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats + 1):
            for name, sampler in samplers.items():
                of_verbs = times[name] if repeat else {}
                spent, draw = seconds(sampler.draw, BATCH)
                of_verbs.setdefault("draw", []).append(spent)
                rows = getattr(draw, "sample_index", draw)
                outcomes = (rows, rng.integers(0, COMPLETIONS + 1, BATCH), np.full(BATCH, COMPLETIONS))
                of_verbs.setdefault("observe", []).append(seconds(sampler.observe, *outcomes)[0])
                if name != "numpy, bare":
                    of_verbs.setdefault("save", []).append(seconds(save_snapshot, folder, sampler)[0])
                    of_verbs.setdefault("load", []).append(seconds(load, made[name](), folder)[0])
    return times


def load(sampler, folder):
    sampler.load_state_dict(load_snapshot(folder).sampler_state)


def cell(values):
    return "-" if not values else f"{np.median(values) * 1e3:.3g} ({min(values) * 1e3:.3g} to {max(values) * 1e3:.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", nargs="+", type=lambda text: int(float(text)), default=[10_000, 1_000_000, 10_000_000]
    )
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    verbs = ("draw", "observe", "save", "load")
    print("| rows | rule | " + " | ".join(f"{verb}, ms, median (lowest to highest)" for verb in verbs) + " |")
    print("| ---: | --- | " + "---: | " * len(verbs))
    for num_rows in options.rows:
        for name, times in measure(num_rows, options.repeats).items():
            print(
                f"| {num_rows:,} | {name} | " + " | ".join(cell(times.get(verb)) for verb in verbs) + " |", flush=True
            )


if __name__ == "__main__":
    main()

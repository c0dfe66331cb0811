"""Samplers side by side: the quickstart (or a recipe) once for each sampler and seed, in turn, and one table.

    python scripts/compare_samplers.py --samplers thompson uniform --seeds 0 1 2

Every run is `scripts/train_vade.py` as a process of its own; arguments after `--` go to it as they are. A finished run
is not run again, so an interrupted comparison can be taken up.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from trl_vade.report import SUMMARY_FILE

TRAIN = Path(__file__).with_name("train_vade.py")
COLUMNS = (
    ("effective gradient ratio", lambda s: s["effective_gradient_ratio_mean"]),
    ("first quarter", lambda s: s["effective_gradient_ratio_first_quarter"]),
    ("last quarter", lambda s: s["effective_gradient_ratio_last_quarter"]),
    ("validation before", lambda s: s["validation"][0]["score"] if s["validation"] else None),
    ("validation after", lambda s: s["validation"][-1]["score"] if s["validation"] else None),
    ("rollouts", lambda s: s["rollouts"]),
)


def run(sampler, seed, output_dir, extra):
    """One run's summary, from its file if it is there already."""
    summary = output_dir / SUMMARY_FILE
    if not summary.exists():
        command = ["accelerate.commands.launch", str(TRAIN), "--vade_sampler", sampler, "--seed", str(seed)]
        subprocess.run([sys.executable, "-m", *command, "--output_dir", str(output_dir), *extra], check=True)
    return json.loads(summary.read_text())


def spread(values):
    if any(value is None for value in values):
        return "-"
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samplers", nargs="+", default=["thompson", "uniform"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output_dir", type=Path, default=Path("vade-comparison"))
    own, _, extra = " ".join(sys.argv[1:]).partition(" -- ")
    options, extra = parser.parse_args(own.split()), extra.split()

    summaries = {sampler: [] for sampler in options.samplers}
    for seed in options.seeds:
        for sampler in options.samplers:
            summaries[sampler].append(run(sampler, seed, options.output_dir / f"{sampler}-{seed}", extra))

    print(f"\nMean over seeds {options.seeds} (lowest to highest)")
    for name, read in COLUMNS:
        print(name)
        for sampler in options.samplers:
            print(f"  {sampler:9} {spread([read(summary) for summary in summaries[sampler]])}")
    (options.output_dir / "comparison.json").write_text(json.dumps(summaries, indent=2) + "\n")


if __name__ == "__main__":
    main()

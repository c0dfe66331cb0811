"""Samplers side by side: the quickstart (or a recipe) once for each sampler and seed, in turn, and one table.

    python scripts/compare_samplers.py --samplers thompson uniform --seeds 0 1 2

Every run is `scripts/train_vade.py` as a process of its own; arguments after `--` go to it as they are. A finished run
is not run again, so an interrupted comparison can be taken up; one with other arguments is refused.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from trl_vade.selection.report.summary import SUMMARY_FILE

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
    summary, asked_for = output_dir / SUMMARY_FILE, output_dir / "arguments.json"
    arguments = ["--vade_sampler", sampler, "--seed", str(seed), *extra]
    if summary.exists():
        found = json.loads(asked_for.read_text()) if asked_for.exists() else None
        if found != arguments:
            sys.exit(
                f"{output_dir} holds a finished run with the arguments {found}, and this comparison asks for "
                f"{arguments}: its figures would be those of other settings. Set another --output_dir, or delete it."
            )
    else:
        output_dir.mkdir(parents=True, exist_ok=True)
        asked_for.write_text(json.dumps(arguments) + "\n")
        command = [sys.executable, "-m", "accelerate.commands.launch", str(TRAIN), *arguments]
        subprocess.run([*command, "--output_dir", str(output_dir)], check=True)
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
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, extra = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]

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

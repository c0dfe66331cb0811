"""Evaluations side by side: differences to one of them with 95 % bootstrap intervals over the questions, and a chart.

    python eval/compare.py results-base results-vade [results-dapo ...] [--reference 0] [--output comparison]

Each benchmark that all of the directories (of `trl-vade evaluate`) have is compared question by question: a question's
score in a directory is its mean over the runs (seeds). Writes `comparison.md`, `.json` and `.png` into `--output`.
"""

import argparse
import inspect
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from trl_vade.benchmarks import BENCHMARKS
from trl_vade.card_templates import markdown_table
from trl_vade.checks import check_whole_number, shown
from trl_vade.durable import save_whole
from trl_vade.errors import ConfigurationError, EvaluationError, VADEError
from trl_vade.eval_runs import read_run, run_folder
from trl_vade.eval_table import read_results
from trl_vade.tables import print_columns

RNG = "rng" if "rng" in inspect.signature(stats.bootstrap).parameters else "random_state"  # before scipy 1.15
# The reference is grey; the others are of Okabe and Ito's palette, told apart with every kind of colour blindness.
GREY, *COLOURS = "#8c8c8c", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442"
COVERED = (
    "Differences are in percentage points, with * where the interval excludes 0. Intervals: paired bootstrap (BCa, "
    "{resamples:,} resamples) over the questions, each with its mean over the seeds. They cover the choice of "
    "questions and the chance in their answers, not other training runs, and are not corrected for their number."
)
Evaluation = Mapping[str, Any]  # a directory's `results.json`, and "name" (in the tables) and "folder"


def read_evaluations(folders: Sequence[Path], names: Sequence[str] | None = None) -> list[Evaluation]:
    """The directories with a name each: that of `names`, or the model's, and the directory's where models repeat."""
    if len(folders) < 2:
        raise ConfigurationError(f"There is only {', '.join(map(str, folders))}; a comparison needs two directories.")
    if names is not None and (len(names) != len(folders) or len({*names}) < len(names)):
        raise ConfigurationError(f"--names is {shown(names)}; it must be {len(folders)} different names, with commas.")
    found = [read_results(folder) for folder in folders]
    named = zip(found, folders, names or unique_names([one["model"]["name"] for one in found], folders), strict=True)
    return [{**one, "name": name, "folder": str(folder)} for one, folder, name in named]


def unique_names(names: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The names; each that repeats with its place, counted as `--reference` does, and its directory's name."""
    return [f"{n} ({i}, {folders[i].resolve().name})" if names.count(n) > 1 else n for i, n in enumerate(names)]


def common_benchmarks(evaluations: Sequence[Evaluation]) -> list[str]:
    """The benchmarks that all have, in the order of `BENCHMARKS`; none is an `EvaluationError`."""
    if common := [name for name in BENCHMARKS if all(name in one["benchmarks"] for one in evaluations)]:
        return common
    found = _each(evaluations, [list(one["benchmarks"]) for one in evaluations])
    raise EvaluationError(f"No benchmark is in all of the directories, so nothing can be compared: {found}.")


def settings(one: Evaluation, benchmarks: Sequence[str]) -> dict[str, Any]:
    """What has to be equal for a difference to be one of the models. The judge counts where one of them is judged."""
    found = {**one["generation"], "system_prompt": one["system_prompt"], "instruction": one["instruction"]}
    if any(BENCHMARKS[name].judged for name in benchmarks):
        found["judge"] = (one["judge"] or {}).get("model")
    for name in benchmarks:  # a document's id is its place: other data have the same ids, and only the name tells them
        found[f"data of {name}"] = one["data"].get(name) or one["benchmarks"][name]["dataset"]
    return found


def check_settings(evaluations: Sequence[Evaluation], benchmarks: Sequence[str], allow: bool = False) -> list[str]:
    """What differs, setting by setting; an `EvaluationError` without `allow`, and for `--limit` always."""
    limits = [one["limit"] for one in evaluations]
    if len({*limits}) > 1:
        raise EvaluationError(f"The questions differ: --limit was {_each(evaluations, limits)}. Set the same limit.")
    found = [settings(one, benchmarks) for one in evaluations]
    values = {key: [one.get(key) for one in found] for one in found for key in one}
    differences = [f"{key} is {_each(evaluations, v)}" for key, v in values.items() if any(x != v[0] for x in v)]
    if differences and not allow:
        raise EvaluationError(
            f"The settings differ: {'; '.join(differences)}. A difference in score would be theirs as well as the "
            "models'. Evaluate with equal settings, or set --allow_different_settings, and the table says so."
        )
    return differences


def _each(evaluations: Sequence[Evaluation], values: Sequence[Any]) -> str:
    return ", ".join(f"{shown(value)} in {one['name']}" for one, value in zip(evaluations, values, strict=True))


def question_scores(evaluation: Evaluation, benchmark: str) -> dict[int, float]:
    """The score of each question in per cent, its mean over the runs in which it counts, by document id."""
    scores: dict[int, list[float]] = {}
    for run in evaluation["benchmarks"][benchmark]["runs"]:
        one = (BENCHMARKS[benchmark], run["seed"])
        found = read_run(run_folder(Path(evaluation["folder"]), *one), *one, evaluation["limit"])
        for document, score in found.scores.items():
            scores.setdefault(document, []).append(100.0 * score)
    return {document: sum(each) / len(each) for document, each in scores.items()}


def paired_scores(evaluations: Sequence[Evaluation], benchmark: str) -> np.ndarray:
    """(directories, questions) scores in per cent, a column a question; other questions are an `EvaluationError`."""
    found = [question_scores(one, benchmark) for one in evaluations]
    for one, other in zip(evaluations[1:], found[1:], strict=True):
        if alone := found[0].keys() ^ other.keys():
            raise EvaluationError(
                f"The questions differ: {len(alone)} of {benchmark} have a score in {one['name']} or in the first "
                f"directory, and not in both: the ids {shown(sorted(alone))}. Evaluate both on the same data."
            )
    # In the order of the ids: with it the resamples, and so the interval, do not follow the order of lines in a file.
    return np.array([[scores[document] for document in sorted(found[0])] for scores in found])


def interval(samples: Sequence[np.ndarray], resamples: int = 10_000, seed: int = 0) -> tuple[float, float] | None:
    """The 95 % bootstrap interval (BCa) of the mean of the samples' means, resampled within each sample.

    A sample has the differences of a benchmark's questions: paired, since both scores of a question stay together.
    The percentile interval where BCa is undefined (nothing varies: a point), and None where a sample has one entry.
    """
    if min(map(len, samples)) < 2:
        return None
    options: dict[str, Any] = {"vectorized": True, "confidence_level": 0.95, "n_resamples": resamples}
    options["batch"] = max(1, 2_000_000 // sum(map(len, samples)))  # 10,000 of ScienceQA at once are 700 MB
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's, where BCa is undefined
        for method in ("BCa", "percentile"):
            options |= {"method": method, RNG: np.random.default_rng(seed)}
            low, high = map(float, stats.bootstrap(samples, mean_of_means, **options).confidence_interval)
            if np.isfinite(low + high):
                break
    return low, high


def mean_of_means(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean over the samples of their means along `axis`."""
    return np.mean([sample.mean(axis=axis) for sample in samples], axis=0)


def standard_error(evaluation: Evaluation, benchmarks: Sequence[str]) -> float | None:
    """The standard error over the seeds of the mean over the benchmarks; None where there is one seed."""
    scores = [[run["score"] for run in evaluation["benchmarks"][name]["runs"]] for name in benchmarks]
    return float(stats.sem(np.mean(scores, axis=0))) if len(scores[0]) > 1 else None


def beside(scores: Sequence[np.ndarray], reference: int, resamples: int) -> list[dict[str, Any]]:
    """Of each directory the mean, the difference to the reference and its interval; `scores` as of `paired_scores`."""
    cells = [{"mean": float(mean), "difference": None, "interval": None} for mean in mean_of_means(*scores)]
    for i, cell in enumerate(cells):
        if i != reference:
            gaps = [block[i] - block[reference] for block in scores]
            cell |= {"difference": float(mean_of_means(*gaps)), "interval": interval(gaps, resamples)}
    return cells


def compare(evaluations: Sequence[Evaluation], reference: int, allow: bool, resamples: int) -> dict[str, Any]:
    """The whole comparison, as `comparison.json` holds it: per cent. The average is of two benchmarks or more."""
    check_whole_number("--reference", reference, minimum=0, maximum=len(evaluations) - 1, advice="0 is the first.")
    check_whole_number("--resamples", resamples, minimum=100, advice="Fewer make no interval; 10000 are usual.")
    common = common_benchmarks(evaluations)
    found: dict[str, Any] = {"reference": reference, "resamples": resamples, "rows": []}
    found["evaluations"] = [{key: one[key] for key in ("name", "folder", "model", "seeds")} for one in evaluations]
    found["different_settings"] = check_settings(evaluations, common, allow)
    scores = {name: paired_scores(evaluations, name) for name in common}
    groups = {BENCHMARKS[name].title: [name] for name in common} | ({"Average": common} if len(common) > 1 else {})
    for title, names in groups.items():
        cells = beside([scores[name] for name in names], reference, resamples)
        for cell, one in zip(cells, evaluations, strict=True):
            cell["stderr"] = standard_error(one, names)
        questions = sum(scores[name].shape[1] for name in names)
        found["rows"].append({"title": title, "benchmarks": names, "questions": questions, "scores": cells})
    return found


def table(comparison: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows: benchmark, questions, the reference's mean, then three columns for each of the others."""
    reference, names = comparison["reference"], [one["name"] for one in comparison["evaluations"]]
    head, rows = ["Benchmark", "Questions", names.pop(reference)], []
    head += [cell for name in names for cell in (name, "Difference", "95 % interval")]
    for row in comparison["rows"]:
        rows.append([row["title"], str(row["questions"]), f"{row['scores'][reference]['mean']:.2f}"])
        for one in (one for one in row["scores"] if one["difference"] is not None):
            low, high = one["interval"] or (None, None)
            ends = "-" if low is None else f"{'* ' * (low > 0 or high < 0)}{low:+.2f} to {high:+.2f}"
            rows[-1] += [f"{one['mean']:.2f}", f"{one['difference']:+.2f}", ends]
    return head, rows


def notes(comparison: Mapping[str, Any]) -> list[str]:
    """What has to be known beside the table."""
    found = [COVERED.format(**comparison)]
    if few := [row["title"] for row in comparison["rows"] if row["questions"] < 30]:
        found.append(f"Fewer than 30 questions, whose intervals are too narrow: {', '.join(few)}.")
    if different := comparison["different_settings"]:
        found.append(f"The settings differ, so a difference need not be the models': {'; '.join(different)}.")
    return found


def draw(comparison: Mapping[str, Any], path: Path) -> None:
    """A group of bars for each row of the table, with the standard error over the runs where there are several."""
    rows, bars = comparison["rows"], []
    names = [one["name"].replace("$", r"\$") for one in comparison["evaluations"]]  # else it begins a formula
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")  # no pyplot: whatever the user's backend is
    axes = figure.subplots()
    for i in range(len(names)):
        colour = GREY if i == comparison["reference"] else COLOURS[(i - 1) % len(COLOURS)]
        means, errors = ([row["scores"][i][key] for row in rows] for key in ("mean", "stderr"))
        places = np.arange(len(rows)) + (i - (len(names) - 1) / 2) * 0.84 / len(names)
        style = {"yerr": None if None in errors else errors, "error_kw": {"elinewidth": 1, "capsize": 2}}
        bars.append(axes.bar(places, means, 0.78 / len(names), color=colour, zorder=2, **style))
        if len(names) * len(rows) <= 24:  # there is no room for more numbers
            axes.bar_label(bars[i], fmt="%.1f", padding=1, fontsize=6)
    axes.set_xticks(range(len(rows)), [row["title"].replace(" (", "\n(") for row in rows], fontsize=8)
    axes.set(ylabel="per cent ± standard error over the runs", ylim=(0, 106), yticks=range(0, 101, 20))
    axes.grid(axis="y", alpha=0.3, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    columns = min(len(names), max(1, 100 // (max(map(len, names)) + 8)))
    figure.legend(bars, names, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print the table and write the files; an error ends it with a message and exit code 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path, help="output directories of evaluations")
    parser.add_argument("--reference", type=int, default=0, help="the directory compared with, counted from 0")
    parser.add_argument("--names", type=lambda names: names.split(","), help="of the directories, with commas between")
    parser.add_argument("--output", type=Path, default=Path("comparison"), help="the directory to write to")
    parser.add_argument("--resamples", type=int, default=10_000, help="of the bootstrap")
    parser.add_argument("--allow_different_settings", action="store_true", help="go on, and say so in the table")
    options = parser.parse_args(arguments)
    try:
        evaluations = read_evaluations(options.results, options.names)
        comparison = compare(evaluations, options.reference, options.allow_different_settings, options.resamples)
        head, rows = table(comparison)
        paragraphs = ["# Comparison", markdown_table(head, rows), "![Scores](comparison.png)", *notes(comparison)]
        save_whole(options.output / "comparison.json", json.dumps(comparison, indent=1).encode())
        save_whole(options.output / "comparison.md", ("\n\n".join(paragraphs) + "\n").encode())
        draw(comparison, options.output / "comparison.png")
    except (VADEError, OSError) as error:
        raise SystemExit(f"Nothing was compared. {error}") from None
    print_columns("Scores in per cent", head, rows)
    print(*notes(comparison), f"Written: {options.output / 'comparison.md'}, .json and .png", sep="\n")


if __name__ == "__main__":
    main()

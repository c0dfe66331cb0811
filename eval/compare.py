"""Compare evaluations: differences to one of them with 95 % bootstrap intervals over the questions, and a chart.

    python eval/compare.py results-base results-vade [results-dapo ...] [--reference 0] [--output comparison]

The directories are of `trl-vade evaluate`. Benchmarks that all of them have are compared question by question, by the
mean over the runs (seeds). Different questions are refused. `--output` gets `comparison.md`, `.json` and `.png`.
"""

import argparse
import inspect
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from trl_vade.checks import abbreviated, check_whole_number
from trl_vade.cli.commands import print_columns
from trl_vade.errors import ConfigurationError, EvaluationError, VADEError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.results import read_results
from trl_vade.evaluation.run_files import read_run, run_folder
from trl_vade.files import save_whole
from trl_vade.hub.card_parts import markdown_table
from trl_vade.selection.report.style import LIGHT, SERIES, WIDEST, drawing, short

RNG = "rng" if "rng" in inspect.signature(stats.bootstrap).parameters else "random_state"  # before scipy 1.15
PACKAGES = ("lmms-eval", "transformers", "torch", "vllm")  # another release may give other answers
MEASURED = ("decoding", "scorer")  # what a score is of, besides its questions
LEAST = 10  # if 4 questions differ in one direction, which chance does one time in 8, BCa excludes 0
COVERED = (
    "Differences are in percentage points. A * says that the interval excludes 0 and {least} questions or more differ "
    "(for the average: of each benchmark where any does). Intervals: paired bootstrap (BCa, {resamples:,} resamples) "
    "over the questions' means over the seeds. They cover the choice of questions and the chance in their answers. "
    "They do not cover other training runs, and are not corrected for their number."
)
Evaluation = Mapping[str, Any]  # a directory's `results.json`, and "name" (in the tables) and "folder"


def read_evaluations(folders: Sequence[Path], names: Sequence[str] | None = None) -> list[Evaluation]:
    """Read the directories, named by `names` or by their models, and by the directory, too, where models repeat."""
    if len(folders) < 2:
        raise ConfigurationError(f"The only directory is {', '.join(map(str, folders))}; a comparison needs two.")
    if names is not None and (len(names) != len(folders) or len({*names}) < len(names)):
        raise ConfigurationError(
            f"--names is {abbreviated(names)}; it needs {len(folders)} different names, separated by commas."
        )
    found = [{**read_results(folder), "folder": str(folder)} for folder in folders]
    models = [one["model"]["name"] for one in found]
    if names is None:  # a repeated name gets its number, as in `--reference`, and its directory
        names = [f"{n} ({i}, {folders[i].resolve().name})" if models.count(n) > 1 else n for i, n in enumerate(models)]
    return [{**one, "name": name} for one, name in zip(found, names, strict=True)]


def common_benchmarks(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the benchmarks that all have, in the order of `BENCHMARKS`; raise `EvaluationError` if there are none."""
    if common := [name for name in BENCHMARKS if all(name in one["benchmarks"] for one in evaluations)]:
        return common
    found = _each(evaluations, [list(one["benchmarks"]) for one in evaluations])
    raise EvaluationError(f"No benchmark is in all of the directories, so nothing can be compared: {found}.")


def settings(one: Evaluation, benchmarks: Sequence[str]) -> dict[str, Any]:
    """Return the settings that must be equal for a fair comparison, with the judge if a benchmark is judged."""
    found = {f"model_args {key}": value for key, value in one["model_args"].items()}
    found |= {"max_new_tokens": one["generation"]["max_new_tokens"]}
    found |= {f"{what} of {name}": one["benchmarks"][name][what] for name in benchmarks for what in MEASURED}
    found |= {key: one[key] for key in ("system_prompt", "instruction", "backend", "batch_size")}
    used = PACKAGES if one["backend"] == "vllm" else PACKAGES[:-1]
    found |= {f"version of {name}": one["versions"].get(name) for name in used}
    if any(BENCHMARKS[name].judged for name in benchmarks):
        found["judge"] = (one["judge"] or {}).get("model")
    for name in benchmarks:
        found[f"data of {name}"] = one["rows"].get(name, one["data"].get(name, one["benchmarks"][name]["dataset"]))
    return found


def check_settings(evaluations: Sequence[Evaluation], benchmarks: Sequence[str], allow: bool = False) -> list[str]:
    """List the settings that differ; raise `EvaluationError` without `allow`, and for other questions always."""
    asked = {"--limit": [one["limit"] or "none" for one in evaluations]}
    asked |= {f"the digest of {name}'s rows": [one["rows"].get(name) for one in evaluations] for name in benchmarks}
    for what, values in asked.items():
        if len({*values} - {None}) > 1:  # None: of the Hub, or not known
            raise EvaluationError(
                f"The questions differ: {what} is {_each(evaluations, values)}. Evaluate on equal ones."
            )
    found = [settings(one, benchmarks) for one in evaluations]
    values = {key: [one.get(key) for one in found] for one in found for key in one}
    differences = [f"{key} is {_each(evaluations, v)}" for key, v in values.items() if any(x != v[0] for x in v)]
    if differences and not allow:
        raise EvaluationError(
            f"The settings differ: {'; '.join(differences)}. They may cause a difference in score, as the models may. "
            "Evaluate with equal settings, or set --allow_different_settings, which is noted below the table."
        )
    return differences


def _each(evaluations: Sequence[Evaluation], values: Sequence[Any]) -> str:
    return ", ".join(f"{abbreviated(value)} in {one['name']}" for one, value in zip(evaluations, values, strict=True))


def paired_scores(evaluations: Sequence[Evaluation], benchmark: str) -> np.ndarray:
    """Return (directories, questions) scores in per cent; raise `EvaluationError` if the questions differ."""
    runs = []
    for one in evaluations:
        tasks = [(BENCHMARKS[benchmark], run["seed"]) for run in one["benchmarks"][benchmark]["runs"]]
        runs.append([read_run(run_folder(Path(one["folder"]), *task), *task, one["limit"]) for task in tasks])
    scores = [
        {i: np.mean([100 * run.scores[i] for run in of_one if i in run.scores]) for run in of_one for i in run.scores}
        for of_one in runs
    ]
    for one, of_one in zip(evaluations, scores, strict=True):
        if other := scores[0].keys() ^ of_one.keys():
            raise EvaluationError(
                f"The questions differ: {len(other)} of {benchmark} have a score in {one['name']} or in "
                f"{evaluations[0]['name']} alone: ids {abbreviated(sorted(other))}."
            )
    # Sorted by id: resamples and intervals must not depend on the order of lines in a file.
    return np.array([[of_one[document] for document in sorted(scores[0])] for of_one in scores])


def interval(samples: Sequence[np.ndarray], resamples: int = 10_000, seed: int = 0) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the mean of the samples' means; None if a sample has one entry.

    A sample holds paired differences and is resampled by itself, by BCa, or by percentiles where BCa is undefined."""
    if min(map(len, samples)) < 2:
        return None
    options = {"n_resamples": resamples, "batch": max(1, 2_000_000 // sum(map(len, samples)))}  # or 700 MB at once
    with warnings.catch_warnings(action="ignore"):  # scipy's, where BCa is undefined
        for method in ("BCa", "percentile"):
            options |= {"method": method, "confidence_level": 0.95, RNG: np.random.default_rng(seed)}
            low, high = map(float, stats.bootstrap(samples, mean_of_means, **options).confidence_interval)
            if np.isfinite(low + high):
                break
    return low, high


def mean_of_means(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the mean over the samples of their means along `axis`."""
    return np.mean([sample.mean(axis=axis) for sample in samples], axis=0)


def beside(scores: Sequence[np.ndarray], reference: int, resamples: int) -> list[dict[str, Any]]:
    """Return each directory's mean, and its difference to the reference with its interval, for `paired_scores`."""
    cells = []
    for i, mean in enumerate(mean_of_means(*scores)):
        gaps = [block[i] - block[reference] for block in scores]
        counts = [int(np.count_nonzero(gap)) for gap in gaps]
        # In the average a small benchmark weighs as much as a large one, whose questions do not make up for its few.
        few = i != reference and (sum(counts) < LEAST or any(0 < count < LEAST for count in counts))
        gap, ends = (None, None) if i == reference else (float(mean_of_means(*gaps)), interval(gaps, resamples))
        marked = not few and ends is not None and (ends[0] > 0 or ends[1] < 0)
        cells.append({"mean": float(mean), "difference": gap, "interval": ends, "differing": sum(counts)})
        cells[i] |= {"few": few, "marked": marked}
    return cells


def compare(evaluations: Sequence[Evaluation], reference: int, allow: bool, resamples: int) -> dict[str, Any]:
    """Return the content of `comparison.json`, in per cent. An average needs two benchmarks or more."""
    check_whole_number("--reference", reference, minimum=0, maximum=len(evaluations) - 1, advice="0 is the first.")
    check_whole_number("--resamples", resamples, minimum=100, advice="Fewer make no interval; 10000 are usual.")
    common = common_benchmarks(evaluations)
    named = [{key: one[key] for key in ("name", "folder", "model", "seeds")} for one in evaluations]
    found = {"reference": reference, "resamples": resamples, "evaluations": named, "rows": []}
    found["different_settings"] = check_settings(evaluations, common, allow)
    scores = {name: paired_scores(evaluations, name) for name in common}
    groups = {BENCHMARKS[name].title: [name] for name in common} | ({"Average": common} if len(common) > 1 else {})
    for title, names in groups.items():
        cells = beside([scores[name] for name in names], reference, resamples)
        for cell, one in zip(cells, evaluations, strict=True):
            parts = [[run["score"] for run in one["benchmarks"][name]["runs"]] for name in names]
            runs = np.mean(np.broadcast_arrays(*parts), axis=0)  # a greedy benchmark has one run
            cell["stderr"] = float(stats.sem(runs)) if len(runs) > 1 else None
        questions = sum(scores[name].shape[1] for name in names)
        found["rows"].append({"title": title, "benchmarks": names, "questions": questions, "scores": cells})
        for what in MEASURED:
            there = {one["benchmarks"][name][what] for one in evaluations for name in names}
            found["rows"][-1][what] = " / ".join(sorted(there)) if len(names) == 1 else ""
    return found


def table(comparison: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: what was measured, the reference's mean, then four columns for each of the others."""
    reference, names = comparison["reference"], [one["name"] for one in comparison["evaluations"]]
    head, rows = ["Benchmark", "Questions", *map(str.capitalize, MEASURED), names.pop(reference)], []
    head += [cell for name in names for cell in (name, "Difference", "95 % interval", "Differing")]
    for row in comparison["rows"]:
        measured = [row["title"], f"{row['questions']:,}", *(row[what] for what in MEASURED)]
        rows.append([*measured, f"{row['scores'][reference]['mean']:.2f}"])
        for one in (one for one in row["scores"] if one["difference"] is not None):
            ends = "{}{:+.2f} to {:+.2f}".format("* " * one["marked"], *one["interval"]) if one["interval"] else "-"
            rows[-1] += [f"{one['mean']:.2f}", f"{one['difference']:+.2f}", ends, str(one["differing"])]
    return head, rows


def notes(comparison: Mapping[str, Any]) -> list[str]:
    """Return the notes below the table."""
    rows, names = comparison["rows"], [one["name"] for one in comparison["evaluations"]]
    few = [f"{row['title']} of {name}" for row in rows for i, name in enumerate(names) if row["scores"][i]["few"]]
    said = {
        f"Fewer than {LEAST} questions differ, too few for a verdict": few,
        "Fewer than 30 questions, so the intervals are too narrow": [r["title"] for r in rows if r["questions"] < 30],
        "The settings differ, which may cause a difference in score": comparison["different_settings"],
    }
    found = [f"{what}: {'; '.join(where)}." for what, where in said.items() if where]
    return [COVERED.format(least=LEAST, **comparison), *found]


def bar_styles(count: int) -> list[dict[str, Any]]:
    """Return colour and hatching of so many kinds of bars; after six the colours come again, hatched."""
    turns = ("", "///", "...")
    return [
        {"color": LIGHT[SERIES[number % 6]], "hatch": turns[number // 6 % 3], "edgecolor": LIGHT["ground"]}
        for number in range(count)
    ]


def draw(comparison: Mapping[str, Any], path: Path) -> None:
    """Draw a group of bars for each row of the table, with the standard error over the runs if there are several."""
    rows, names = comparison["rows"], [short(one["name"], 60) for one in comparison["evaluations"]]
    styles = bar_styles(len(names) - 1)
    styles.insert(comparison["reference"], {"color": LIGHT["quiet"]})
    with drawing(WIDEST, 4.5) as figure:
        axes, bars = figure.subplots(), []
        for i, style in enumerate(styles):
            means, errors = ([row["scores"][i][key] for row in rows] for key in ("mean", "stderr"))
            places = np.arange(len(rows)) + (i - (len(names) - 1) / 2) * 0.84 / len(names)
            about = {"yerr": None if None in errors else errors, "error_kw": {"elinewidth": 1, "capsize": 2}}
            bars.append(axes.bar(places, means, 0.78 / len(names), **style, **about))
            if len(names) * len(rows) <= 20:  # there is no room for more numbers
                axes.bar_label(bars[i], fmt="%.1f", padding=1)
        axes.set_xticks(range(len(rows)), [row["title"].replace(" (", "\n(") for row in rows])
        axes.set(ylabel="per cent ± standard error over the runs", ylim=(0, 106), yticks=range(0, 101, 20))
        axes.grid(visible=False, axis="x")
        columns = min(len(names), max(1, 90 // (max(map(len, names)) + 8)))
        figure.legend(bars, names, loc="outside upper center", ncols=columns)
        figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print the table and write the files; an error ends it with a message and exit code 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path, help="output directories of evaluations")
    parser.add_argument("--reference", type=int, default=0, help="number of the directory to compare with, from 0")
    parser.add_argument("--names", type=lambda names: names.split(","), help="of the directories, separated by commas")
    parser.add_argument("--output", type=Path, default=Path("comparison"), help="the directory to write to")
    parser.add_argument("--resamples", type=int, default=10_000, help="resamples of the bootstrap")
    parser.add_argument("--allow_different_settings", action="store_true", help="compare, with a note below the table")
    options = parser.parse_args(arguments)
    try:
        evaluations = read_evaluations(options.results, options.names)
        comparison = compare(evaluations, options.reference, options.allow_different_settings, options.resamples)
        text = ["# Comparison", markdown_table(*table(comparison)), "![Scores](comparison.png)", *notes(comparison)]
        save_whole(options.output / "comparison.json", json.dumps(comparison, indent=1).encode())
        save_whole(options.output / "comparison.md", ("\n\n".join(text) + "\n").encode())
        draw(comparison, options.output / "comparison.png")
    except (VADEError, OSError) as error:
        raise SystemExit(f"Nothing was compared. {error}") from None
    print_columns("Scores in per cent", *table(comparison))
    print(*notes(comparison), f"Written: {options.output / 'comparison.md'}, .json and .png", sep="\n")


if __name__ == "__main__":
    main()

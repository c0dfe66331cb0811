"""Evaluations without lmms-eval: files of runs in its shape, a process in its place, and a package of its name."""

import json
import math
import shutil
import textwrap

import numpy as np

from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.results import write_results
from trl_vade.evaluation.run_files import read_run, run_folder

TIME = "20260801_120000"
SCORES = [1.0, 0.0, 1.0, 1.0]
TEXTS = ["<answer>4</answer>", "Yes", "no\u2028and \u0085 more", "\u00e9"]


def write_run(
    folder, name="chartqa", seed=0, scores=SCORES, texts=None, limit=None, original=None, value=..., time=TIME
):
    """The files of a run in the form in which lmms-eval 0.7.3 wrote those of a small ChartQA.

    The `value` of the metric is, left out, what the task's aggregation makes of the scores.
    """
    benchmark = BENCHMARKS[name]
    counted = [score for score in scores if score is not None]
    value = math.fsum(counted) / len(counted) if value is ... else value
    model = folder / "models__Qwen2.5-VL-7B"
    model.mkdir(parents=True)
    results = {
        "results": {benchmark.task: {"alias": benchmark.task, benchmark.key: value}},
        "n-samples": {benchmark.task: {"original": original or len(scores), "effective": len(scores)}},
        "config": {
            **{"model": "qwen2_5_vl", "limit": None if limit is None else float(limit), "gen_kwargs": "temperature=1"},
            **{"random_seed": seed, "numpy_seed": seed, "torch_seed": seed, "fewshot_seed": seed},
        },
    }
    save(model / f"{time}_results.json", results)
    lines = [line_of(benchmark, *line) for line in zip(range(len(scores)), scores, texts or TEXTS * 9, strict=False)]
    save_lines(samples_file(folder, name, time), lines)
    if benchmark.judged:
        save(folder / "judge.json", {"calls": 300, "unreadable": 2, "example": "Well..."})


def line_of(benchmark, number, score, text):
    rest = {"token_counts": [None], "doc_hash": "74", "input": "q?"}
    return {"doc_id": number, "target": "4", "filtered_resps": text, **rest, benchmark.metric: score}


def samples_file(folder, name="chartqa", time=TIME):
    return folder / "models__Qwen2.5-VL-7B" / f"{time}_samples_vade_{name}.jsonl"


def results_file(folder):
    return folder / "models__Qwen2.5-VL-7B" / f"{TIME}_results.json"


def save(path, content):
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def save_lines(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


FILES = {
    "config.json": b'{"model_type": "qwen2_5_vl"}',
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": b"the weights",
}


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def pairs(evaluation):
    return [(BENCHMARKS[name], seed) for seed in evaluation.seeds for name in evaluation.tasks]


def finish(evaluation, output=None, **options):
    """The files of all runs, as lmms-eval leaves them; the scores differ with the seed."""
    for benchmark, seed in pairs(evaluation):
        scores = [1.0, float(seed == 0), 0.0, 1.0]
        folder = run_folder(output or evaluation.output, benchmark, seed)
        write_run(folder, benchmark.name, seed, scores=scores, limit=evaluation.limit, **options)


BEGIN = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
plan = json.loads(Path(sys.argv[1]).read_text())
done = lambda number: Path(plan["done"], str(number)).touch()
"""


def write_runner(folder, code):
    """A package in `folder`: processes that start there find its `evaluation.lmms_process`, not the real one."""
    package = folder / "trl_vade" / "evaluation"
    package.mkdir(parents=True, exist_ok=True)
    for each in (package, package.parent):
        (each / "__init__.py").touch()
    (package / "lmms_process.py").write_text(BEGIN + textwrap.dedent(code), encoding="utf-8")


RUNNER = """
import shutil
for number, run in enumerate(plan["runs"]):
    name = Path(run["folder"]).name
    print("evaluating", name, flush=True)
    if Path("fails", name).exists():
        sys.exit(0)  # as lmms-eval does
    shutil.copytree(Path("made", "runs", name), run["folder"], dirs_exist_ok=True)
    shutil.copy(sys.argv[1], "last-plan.json")
    shutil.copytree(plan["tasks"], "last-tasks", dirs_exist_ok=True)
    done(number)
"""


def logs(evaluation):
    return [path.read_text().splitlines() for path in sorted(evaluation.output.glob("logs/*.log"))]


def install_lmms_eval(site, version="0.7.3"):
    """A folder for the path in which lmms-eval seems to be installed: its name and its release, and nothing behind."""
    (site / "lmms_eval" / "tasks").mkdir(parents=True)
    (site / "lmms_eval" / "__init__.py").touch()
    about = site / f"lmms_eval-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lmms-eval\nVersion: {version}\n")
    return site


VERSIONS = {"lmms-eval": "0.7.3", "transformers": "5.0.0", "torch": "2.9.0", "vllm": "0.12.0", "datasets": "4.0.0"}
GENERATION = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_new_tokens": 2048, "repetition_penalty": 1.0}
FACTS = {
    **{"backend": "vllm", "seeds": [0, 1], "limit": None, "system_prompt": None, "instruction": None, "judge": None},
    **{"decoding": dict.fromkeys(BENCHMARKS, "temperature 0.6"), "generation": GENERATION, "batch_size": 8},
    **{"model": {"name": "model", "revision": None, "fingerprint": "f"}, "model_args": {"max_pixels": 12845056}},
    **{"data": {}, "rows": {}, "versions": VERSIONS, "command": "trl-vade evaluate", "finished": "2026-08-01"},
}


def finished(output, scores, time=TIME, **facts):
    """An output directory; `scores` has of each benchmark one (seeds, questions) array, or one for all seeds."""
    facts, runs = FACTS | facts, []
    for name, of_runs in scores.items():
        of_runs = np.broadcast_to(of_runs, (len(facts["seeds"]), np.shape(of_runs)[-1]))
        for seed, of_run in zip(facts["seeds"], of_runs, strict=True):
            folder = run_folder(output, BENCHMARKS[name], seed)
            shutil.rmtree(folder, ignore_errors=True)
            write_run(folder, name, seed, [float(score) for score in of_run], ["\u20ac"] * len(of_run), time=time)
            runs.append(read_run(folder, BENCHMARKS[name], seed, facts["limit"]))
    write_results(output, facts, runs)
    save(output / "evaluation.json", {})
    return output

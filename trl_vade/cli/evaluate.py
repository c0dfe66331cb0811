"""`trl-vade evaluate`: benchmarks by lmms-eval, several seeds, one table; and the results to the Hub."""

import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml
from typer import Argument, Option

from trl_vade.evaluation.benchmarks import FIVE

TASKS = ",".join(FIVE)
Backend = Literal["transformers", "vllm", "server"]


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise typer.BadParameter(f"{text!r}: write name=value.")
    return name, value


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _pairs(text: str) -> list[tuple[str, str]]:
    return [_pair(word) for word in _words(text)]


def evaluate(
    model: Annotated[str, Argument(metavar="MODEL", help="A folder, a model of the Hub, `testbed`, or a served one.")],
    output_path: Annotated[Path, Option("--output_path", help="Directory; what is finished there is not run again.")],
    tasks: Annotated[Any, Option("--tasks", parser=_words, metavar="NAMES", help="With commas between.")] = TASKS,
    seeds: Annotated[Any, Option("--seeds", parser=_numbers, metavar="N,N", help="One run for each.")] = "0,1,2,3",
    limit: Annotated[int | None, Option("--limit", help="Only the first N questions of each benchmark.")] = None,
    data: Annotated[list[Any] | None, Option("--data", parser=_pair, metavar="TASK=FOLDER", help="Its rows.")] = None,
    revision: Annotated[str | None, Option("--revision", help="Branch, tag or commit of MODEL.")] = None,
    backend: Annotated[Backend, Option("--backend", help="What generates.")] = "transformers",
    server_url: Annotated[str | None, Option("--server_url", help="Its address, for --backend server.")] = None,
    batch_size: Annotated[int | None, Option("--batch_size", help="Default: 8; vllm 256, server 32.")] = None,
    model_args: Annotated[
        Any,
        Option("--model_args", parser=_pairs, metavar="A=B,...", help="Such as max_pixels=N,tensor_parallel_size=4."),
    ] = "",
    temperature: Annotated[float | None, Option("--temperature", help="0: greedy. Default: as in the paper.")] = None,
    top_p: Annotated[float, Option("--top_p")] = 0.95,
    top_k: Annotated[int, Option("--top_k", help="0: no limit.")] = 0,
    max_new_tokens: Annotated[int, Option("--max_new_tokens")] = 2048,
    repetition_penalty: Annotated[float, Option("--repetition_penalty", help="1: none, as in training.")] = 1.0,
    instruction: Annotated[str | None, Option("--instruction", help="After every question; or `mixture`.")] = None,
    system_prompt: Annotated[str | None, Option("--system_prompt", help="Said before every question.")] = None,
    judge_url: Annotated[str | None, Option("--judge_url", help="Address of the judge's server.")] = None,
    judge_model: Annotated[str | None, Option("--judge_model", help="Name of the judge on its server.")] = None,
    push_to_hub: Annotated[str | None, Option("--push_to_hub", metavar="REPO", help="For the results.")] = None,
    hub_revision: Annotated[str | None, Option("--hub_revision", help="Branch of REPO. Default: main.")] = None,
    private: Annotated[bool, Option("--private", help="REPO is private, if it is new.")] = False,
) -> None:
    """Evaluate a model on benchmarks by lmms-eval: average@4, with standard errors and the paper's rows beside.

    mathvista, mathverse and mathvision need a judge (--judge_url, --judge_model); scienceqa_img, chartqa, scienceqa
    and mathvision_rules do not. mixture takes the validation split of your own data (--data mixture=FOLDER), testbed
    the embedded data set.

    Each (seed, benchmark) is a run. The same command goes on where an earlier one stopped. A dead judge, a
    missing result or a half-written file ends in an error, and nothing is published.

    \b
    Examples:
      trl-vade evaluate testbed --tasks testbed --output_path results
      trl-vade evaluate you/qwen-vade --output_path results --backend vllm \\
        --judge_url http://judge:8000/v1 \\
        --judge_model Qwen/Qwen2.5-72B-Instruct --push_to_hub you/qwen-vade
    """
    from tqdm import tqdm

    from trl_vade.evaluation.judge import Judge
    from trl_vade.evaluation.measuring import evaluate as run_evaluation
    from trl_vade.evaluation.publish import publish_results
    from trl_vade.evaluation.settings import Evaluation, Generation, check
    from trl_vade.hub.uploading import HubTarget, ensure_repo
    from trl_vade.rewards.functions import INSTRUCTION

    if (judge_url is None) != (judge_model is None):
        raise typer.BadParameter("--judge_url and --judge_model go together.")
    if push_to_hub and limit:
        raise typer.BadParameter("--push_to_hub: results with --limit are no scores of a benchmark to publish.")
    evaluation = Evaluation(
        model=model,
        output=output_path,
        tasks=tasks,
        seeds=seeds,
        limit=limit,
        backend=backend,
        server_url=server_url,
        revision=revision,
        judge=Judge(judge_url, judge_model) if judge_url and judge_model else None,
        generation=Generation(temperature, top_p, top_k, max_new_tokens, repetition_penalty),
        batch_size={"transformers": 8, "vllm": 256, "server": 32}[backend] if batch_size is None else batch_size,
        instruction=INSTRUCTION if instruction == "mixture" else instruction,
        system_prompt=system_prompt,
        data={name: Path(folder) for name, folder in data or []},
        model_args={name: yaml.safe_load(value) for name, value in model_args},
        command=shlex.join(["trl-vade", "evaluate", *sys.argv[2:]]),
    )
    benchmarks = check(evaluation)
    target = HubTarget(push_to_hub or "", "model", hub_revision, private or None)
    if push_to_hub:
        target = ensure_repo(target)  # a login that may not write is refused now
    if model == "testbed" and backend != "server" and not Path(model).exists():
        from trl_vade.testbed import load_testbed_model

        evaluation = replace(evaluation, model=str(load_testbed_model()))  # trained on first use: minutes
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` sets it
            # The default would end this process at once, and leave folders behind.
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    with tqdm(total=sum(len(evaluation.seeds_of(one)) for one in benchmarks), unit="run", desc="lmms-eval") as bar:

        def progress(run: Any) -> None:
            bar.set_description(f"{run.benchmark.name}, seed {run.seed}: {run.score:.2f} %")
            bar.update()

        try:
            run_evaluation(evaluation, progress)
        except (KeyboardInterrupt, SystemExit):
            typer.echo("\nInterrupted. Runs that were finished are kept: the same command goes on.", err=True)
            raise
    typer.echo((output_path / "results.md").read_text(encoding="utf-8"))
    if push_to_hub:
        typer.echo(f"Published: {publish_results(output_path, target)}")

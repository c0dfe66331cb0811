"""The results of an evaluation on the Hub: in the model's card, and raw beside the checkpoint, in one commit.

    README.md                             a table, and for other programs the `model-index`
    vade_evaluation/<date>-<model>/       results.json, results.md, evaluation.json, and the runs that they are of
    .eval_results/<benchmark>.yaml        where the data set says that it is a benchmark, for its leaderboard

The card speaks of the weights beside it, so nothing goes to a repository with other weights than were evaluated. A
score over the first few questions is told to people, with a warning, and never to programs.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from huggingface_hub import HfApi, get_token
from huggingface_hub.utils import yaml_dump

from .card_metadata import CARD_FILE, with_index, with_results
from .errors import EvaluationError, HubError
from .eval_leaderboards import leaderboard_entries
from .eval_table import card_lines, read_results, results_table
from .eval_weights import EvaluatedWeights, Refused
from .hub import HubTarget, commit_folder, ensure_repo, patiently

RAW_FOLDER = "vade_evaluation"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "JUDGE_API_KEY", "OPENAI_API_KEY", "VADE_SERVER_API_KEY")
"""Variables of the environment whose values are in no file that is sent."""
LEAST_SECRET = 8
"""Signs of a value that is taken for a secret: the key of a local server is "EMPTY" or "none", words of many texts."""
_TOKEN = re.compile(rb"hf_[A-Za-z0-9]{20,}")
_Results = Mapping[str, Any]


def publish_results(
    output: Path,
    target_repo: str,
    *,
    model_folder: Path | None,
    revision: str | None = None,
    private: bool | None = None,
    allow_limited: bool = False,
) -> str:
    """Publish the finished evaluation in `output` in the model repository `target_repo`; return the commit's address.

    What the card says already stays, but for what an earlier call has put there about the same benchmarks. The runs of
    an output directory that was published before replace their earlier files.

    Args:
        output: with the results.json of `eval_results.write_results`.
        target_repo: "user/name", or "name" for one of your own; it is created where it is missing.
        model_folder: the model that was evaluated. Its card is taken where the repository has none. None: the commit
            in the results tells the weights; where there is none, nothing is compared.
        revision: the branch; None is main.
        private: of a repository that is made.
        allow_limited: publish results over the first few questions: with a warning, and not for other programs.

    Raises:
        EvaluationError: the results are not there or not whole; they are limited; the repository has other weights; a
            file to be sent has a secret in it, or is missing; the card there cannot be read. Nothing is published.
        HubError: the Hub refuses, or cannot be reached; it says how to publish later.
    """
    results = read_results(output)
    if results["limit"] is not None and not allow_limited:
        raise EvaluationError(
            f"{output} has results over the first {results['limit']} questions of each benchmark: in a card they "
            "would stand beside others' as if they were the benchmark's. Evaluate without --limit, or allow it "
            "(--publish_limited, allow_limited=True): then the files are sent, and a table that says so."
        )
    target = HubTarget(target_repo, "model", revision, private)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _publish(output, results, target, model_folder, Path(folder))
    except Refused as refused:
        raise EvaluationError(str(refused)) from refused.__cause__
    except HubError as error:
        message = f"{error} {_later(output, results, target, model_folder)}"
        kind, after = type(error), error.retry_after  # HubOfflineError stays one
        raise kind(message, status=error.status, may_pass=error.may_pass, retry_after=after) from error


def _publish(output: Path, results: _Results, target: HubTarget, model_folder: Path | None, staged: Path) -> str:
    runs = staged / "runs"  # under the name that it has in the repository when the Hub was asked
    for path in sorted(_raw_files(output, results)):
        _write(runs / path, _without_secrets(output / path))
    evaluated = EvaluatedWeights(results, model_folder)
    target, api = ensure_repo(target), HfApi()
    there = patiently(lambda: api.list_repo_files(target.repo_id, revision=target.revision), target)
    raw = _raw_folder(results, there, runs)
    layout = staged / "repository"
    (layout / raw).parent.mkdir(parents=True)
    runs.rename(layout / raw)
    for name, entries in leaderboard_entries(api, results, target, raw).items():
        _write(layout / ".eval_results" / f"{name}.yaml", yaml_dump(entries, sort_keys=False).encode())

    def render(files: list[str]) -> dict[str, bytes | None]:
        # What is on the branch now. Where that is not any more what the commit is built on, the Hub refuses it.
        evaluated.refuse_others(api, target)
        card, own = None, model_folder / CARD_FILE if model_folder else None
        if CARD_FILE in files:
            # To a new folder: where the Hub does not answer, the client gives an older card from its cache.
            new = tempfile.mkdtemp(dir=staged)
            file = api.hf_hub_download(target.repo_id, CARD_FILE, revision=target.revision, local_dir=new)
            card = Path(file).read_bytes()
        elif own and own.is_file():
            card = _without_secrets(own)
        return {CARD_FILE: _completed(card, results, target, raw).encode()}

    message = f"Evaluation: {', '.join(part['title'] for part in results['benchmarks'].values())}"
    return str(commit_folder(target, layout, message=message, render=render).commit_url)


def _later(output: Path, results: _Results, target: HubTarget, model_folder: Path | None) -> str:
    model = str(model_folder or results["model"]["name"])
    words = ["trl-vade", "evaluate", model, "--output_path", str(output), "--push_to_hub", target.repo_id]
    words += ["--hub_revision", target.revision] if target.revision else []
    return (
        f"The results stay in {output}. To publish them later: `{shlex.join(words)}`, with the other options of the "
        "evaluation; finished runs are not repeated."
    )


# ------------------------------------------------------------------------------------------------------ raw files


def _raw_files(output: Path, results: _Results) -> Iterable[str]:
    """The files that are published as they are, by their path in `output`: of the runs, those the results are of."""
    yield from ("results.json", "results.md", "evaluation.json")
    for part in results["benchmarks"].values():
        for run in part["runs"]:
            file = PurePosixPath(run["results_file"])
            if file.parts[:1] != ("runs",) or ".." in file.parts or len(file.parts) < 3:
                raise Refused(f"{output / 'results.json'} names {file} as a run's file; it must be in runs/<run>/.")
            yield str(file)
            samples = f"{file.name.removesuffix('results.json')}samples_*.jsonl"
            yield from (path.relative_to(output).as_posix() for path in (output / file.parent).glob(samples))
            judge = PurePosixPath(*file.parts[:2], "judge.json")
            if (output / judge).is_file():
                yield str(judge)


def _without_secrets(path: Path) -> bytes:
    """The content of a file that is to be sent. What is checked is what is sent: it is not read again."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise Refused(
            f"{path} is missing, and results without what they are made of are not published. Run the evaluation's "
            "command again: it makes what is not there."
        ) from error
    secrets = {os.environ.get(name) for name in SECRETS} | {get_token()}
    known = any(secret.encode() in content for secret in secrets if secret and len(secret) >= LEAST_SECRET)
    if known or _TOKEN.search(content):
        raise Refused(
            f"{path} has {'a token or key of this environment' if known else 'what looks like a token of the Hub'} in "
            "it, so nothing is published: all who read the repository could use it. Take it out, and revoke it if "
            "anybody else may have seen the file."
        )
    return content


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _raw_folder(results: _Results, there: Iterable[str], staged: Path) -> str:
    """The folder of the raw results: that of the same runs, where they were published before, else a new one.

    The runs' files have the time in their names. So an output directory that has grown since is known again, and
    another evaluation of the same day is another one.
    """
    runs: dict[str, set[str]] = {}
    for path in there:
        if match := re.fullmatch(rf"{RAW_FOLDER}/([^/]+)/(.+)", path):
            found = runs.setdefault(match[1], set())
            found |= {match[2]} if match[2].endswith("_results.json") else set()
    here = {path.relative_to(staged).as_posix() for path in staged.rglob("*_results.json")}
    same = sorted(name for name, files in runs.items() if files and files <= here)
    date = re.match(r"\d{4}-\d\d-\d\d", results["finished"])
    name = f"{date[0] if date else 'undated'}-{_key(results)[:8]}"
    free = next(one for number in range(1, len(runs) + 2) if (one := name + f"-{number}" * (number > 1)) not in runs)
    return f"{RAW_FOLDER}/{same[0] if same else free}"


def _key(results: _Results) -> str:
    """The model's fingerprint, as a path and a comment of HTML can have it."""
    return re.sub(r"\W", "", results["model"]["fingerprint"], flags=re.ASCII) or "unknown"


# ------------------------------------------------------------------------------------------------------- the card


def _completed(card: bytes | None, results: _Results, target: HubTarget, raw: str) -> str:
    """The card with the results; `card` is what there is, None where there is none."""
    name, limited = target.repo_id.split("/")[-1], results["limit"] is not None
    # Without the last line, that of the average: the index has no way to say what it is of.
    lines = zip(results["benchmarks"], card_lines(results), strict=False)
    named = [{**line, "benchmark": _title(results, one)} for one, line in lines]
    try:
        content = f"# Model Card for {name}\n" if card is None else card.decode("utf-8-sig")
        content = content if limited else with_index(content, named, name)
    except (ValueError, yaml.YAMLError) as error:
        raise Refused(f"The card of {target}, {CARD_FILE}, cannot be read: {error}. Mend it there first.") from error
    names = list(results["benchmarks"])
    return with_results(content, _section(results, raw), model=_key(results), names=names, limited=limited)


def _title(results: _Results, name: str) -> str:
    folder = results["data"].get(name)
    title = results["benchmarks"][name]["title"]
    return f"{title}, questions of the folder {folder}" if folder else str(title)


def _section(results: _Results, raw: str) -> str:
    fence = "```"
    while fence in results["command"]:
        fence += "`"
    warning = f"**Only the first {results['limit']} questions of each benchmark: these are no scores of it.**"
    parts = [*([] if results["limit"] is None else [warning]), results_table(results)]
    parts += [f"Every answer, settings and versions: [{raw}]({raw}/results.json). The command:"]
    return "\n\n".join([*parts, f"{fence}bash\n{results['command']}\n{fence}"])

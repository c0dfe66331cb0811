"""Publication of an evaluation's results in the model's repository, in one commit.

    README.md                               a table, and the `model-index` for programs
    vade_evaluation/<date>-<model>-<runs>/  results.json, results.md, evaluation.json, and the files of the runs
    .eval_results/<benchmark>.yaml          an entry for the leaderboard of the benchmark's data set, if it has one

A card describes the weights beside it. So nothing is sent to a repository with another model, and results of other
weights are removed from the card and the entries; raw runs stay. Scores on a part of the questions appear in the card
with a warning, and never in files for programs.
"""

import hashlib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from huggingface_hub import HfApi, get_token

from trl_vade.errors import EvaluationError, HubError
from trl_vade.hub.cards import CARD_FILE
from trl_vade.hub.uploading import HubTarget, commit_folder, ensure_repo, with_retries

from ..results.table import Results, read_results
from .card_results import results_of_others, with_index, with_results
from .leaderboards import FOLDER, index_lines, index_places, leaderboard_entries, merged_files
from .weights import EvaluatedWeights, Refused, model_key

RAW_FOLDER = "vade_evaluation"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "JUDGE_API_KEY", "OPENAI_API_KEY", "VADE_SERVER_API_KEY")
"""Environment variables whose values must not be in a published file."""
LEAST_SECRET = 8  # Characters of the shortest secret. Keys of local servers, such as "EMPTY", occur in many texts.
_TOKEN = re.compile(rb"hf_[A-Za-z0-9]{20,}")
_PLACE = re.compile(r'(^|[=,:;"])(/[^/,;"\n]+/[^,;"\n]*)')  # neither /no_think nor a URL


def publish_results(
    output: Path,
    target_repo: str,
    *,
    model_folder: Path | None,
    revision: str | None = None,
    private: bool | None = None,
    allow_limited: bool = False,
    publish_samples: bool = False,
) -> str:
    """Publish a finished evaluation in a model repository, and return the address of the commit.

    The card keeps its text, except earlier results of the same benchmarks or of other weights. The runs of an output
    directory that was published before replace their earlier files. Local paths in the runs' settings and in the
    command are shortened to their last part.

    Args:
        output: the output directory, with the results.json of `summary.write_results`.
        target_repo: "user/name", or "name" for a repository of your own; it is created if it does not exist.
        model_folder: the evaluated model. Its card is used if the repository has none. None compares with the commit
            in the results; without a commit, weights are not compared.
        revision: the branch; None is main.
        private: whether a new repository is private.
        allow_limited: whether to publish results on a part of the questions, with a warning.
        publish_samples: whether to publish questions, references and answers of benchmarks on a user's folder, too.

    Raises:
        EvaluationError: the results are incomplete or limited, the model changed since, the repository has another
            model, a file is missing or holds a secret, or the card cannot be read. Nothing is published.
        HubError: the Hub refuses or cannot be reached. The message has the command to publish later.
    """
    results = read_results(output)
    if results["limit"] is not None and not allow_limited:
        raise EvaluationError(
            f"{output} has results on the first {results['limit']} questions of each benchmark. Readers of a card "
            "would take them for scores of the benchmark. Evaluate without --limit, or allow it (--publish_limited, "
            "allow_limited=True) to publish the files and a table with a warning."
        )
    target = HubTarget(target_repo, "model", revision, private)
    own = [] if publish_samples else [name for name in results["data"] if name != "testbed"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            staged = Path(folder)
            for path in sorted(_raw_files(output, results, own)):
                (staged / "runs" / path).parent.mkdir(parents=True, exist_ok=True)
                (staged / "runs" / path).write_bytes(_as_sent(path, _without_secrets(output / path)))
            return _publish(results, target, model_folder, own, staged)
    except Refused as refused:
        raise EvaluationError(str(refused)) from refused.__cause__
    except HubError as error:
        message = f"{error} {_how_to_publish_later(output, results, target, model_folder)}"
        kind, after = type(error), error.retry_after  # HubOfflineError keeps its type
        raise kind(message, status=error.status, may_pass=error.may_pass, retry_after=after) from error


def _publish(results: Results, target: HubTarget, model_folder: Path | None, own: Sequence[str], staged: Path) -> str:
    evaluated = EvaluatedWeights(results, model_folder)
    target, api = ensure_repo(target), HfApi()
    there = with_retries(lambda: api.list_repo_files(target.repo_id, revision=target.revision), target)
    layout, raw = staged / "repository", _raw_folder(results, there, staged / "runs")
    (layout / raw).parent.mkdir(parents=True)
    (staged / "runs").rename(layout / raw)
    entries = leaderboard_entries(api, results, target, raw)
    readme = model_folder / CARD_FILE if model_folder else None

    def read(path: str) -> bytes:
        # A new folder: without an answer of the Hub, the client would return an older file from its cache.
        new = tempfile.mkdtemp(dir=staged)
        return Path(api.hf_hub_download(target.repo_id, path, revision=target.revision, local_dir=new)).read_bytes()

    def render(files: list[str]) -> dict[str, bytes | None]:
        # Read the branch now. If it changes before the commit, the Hub refuses the commit.
        evaluated.refuse_others(api, target)
        card = read(CARD_FILE) if CARD_FILE in files else None
        if card is None and readme and readme.is_file():
            card = _without_secrets(readme)
        content = _completed(card, results, target, _section(results, raw, own))
        return {CARD_FILE: content.encode(), **merged_files(entries, files, read, raw)}

    message = f"Evaluation: {', '.join(part['title'] for part in results['benchmarks'].values())}"
    # In the mirrored folder, files that `merged_files` does not name are deleted; None keeps a file.
    return str(commit_folder(target, layout, message=message, render=render, mirror=[FOLDER]).commit_url)


def _how_to_publish_later(output: Path, results: Results, target: HubTarget, model_folder: Path | None) -> str:
    model = str(model_folder or results["model"]["name"])
    words = ["trl-vade", "evaluate", model, "--output_path", str(output), "--push_to_hub", target.repo_id]
    words += ["--hub_revision", target.revision] if target.revision else []
    return (
        f"The results stay in {output}. Publish them later with `{shlex.join(words)}` and the other options of the "
        "evaluation. Finished runs are not repeated."
    )


def _raw_files(output: Path, results: Results, own: Sequence[str]) -> Iterable[str]:
    """Yield the paths in `output` to publish: results and files of their runs, without the samples of `own`."""
    yield from ("results.json", "results.md", "evaluation.json")
    for name, part in results["benchmarks"].items():
        for run in part["runs"]:
            file = PurePosixPath(run["results_file"])
            if file.parts[:1] != ("runs",) or ".." in file.parts or len(file.parts) < 3:
                raise Refused(
                    f"{output / 'results.json'} names {file} as a run's file, but it must be in runs/<run>/."
                )
            yield str(file)
            samples = f"{file.name.removesuffix('results.json')}samples_*.jsonl"
            found = [] if name in own else (output / file.parent).glob(samples)
            yield from (path.relative_to(output).as_posix() for path in found)
            judge = PurePosixPath(*file.parts[:2], "judge.json")
            if name not in own and (output / judge).is_file():  # it may quote an answer
                yield str(judge)


def _without_secrets(path: Path) -> bytes:
    """Return the content of a file, or refuse it if it holds a secret. The file is not read again."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise Refused(
            f"{path} is missing, but results are published only with the files they come from. Run the evaluation's "
            "command again to make it."
        ) from error
    secrets = {os.environ.get(name) for name in SECRETS} | {get_token()}
    known = any(secret.encode() in content for secret in secrets if secret and len(secret) >= LEAST_SECRET)
    if known or _TOKEN.search(content):
        what = "a token or key of this environment" if known else "a text that looks like a token of the Hub"
        raise Refused(
            f"{path} contains {what}, so nothing is published: every reader of the repository could use it. Remove "
            "it, and revoke it if anybody else may have seen the file."
        )
    return content


def _as_sent(path: str, content: bytes) -> bytes:
    """Return the content of a file with local paths shortened to their last part. lmms-eval records many."""
    if not path.endswith(("results.json", "evaluation.json")):
        return content
    try:
        data = json.loads(content)
    except ValueError as error:
        raise Refused(f"{path} is not complete JSON ({error}). Run the evaluation's command again.") from error
    # In results.json only the command is changed: a system prompt may start with a slash.
    sent = data | {"command": _command(data["command"])} if path == "results.json" else _without_places(data)
    return content if sent == data else f"{json.dumps(sent, indent=2)}\n".encode()


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_places(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(_without_places, value))
    if not isinstance(value, str):
        return value
    text, home = _PLACE.sub(lambda found: found[1] + PurePosixPath(found[2]).name, value), os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text


def _command(command: str) -> str:
    try:
        return shlex.join(map(_without_places, shlex.split(command)))
    except ValueError:  # a shell could not read it
        return str(_without_places(command))


def _raw_folder(results: Results, there: Iterable[str], staged: Path) -> str:
    """Return the folder of the raw results: that of an earlier publication of the same runs, or a new one.

    The files of runs have the time in their names, so an output directory with added runs is recognised. Every other
    evaluation gets another folder.
    """
    runs: dict[str, set[str]] = {}
    for path in there:
        if match := re.fullmatch(rf"{RAW_FOLDER}/([^/]+)/(.+_results\.json)", path):
            runs.setdefault(match[1], set()).add(match[2])
    here = {path.relative_to(staged).as_posix(): path.read_bytes() for path in staged.rglob("*_results.json")}
    if same := sorted(name for name, files in runs.items() if files <= here.keys()):
        return f"{RAW_FOLDER}/{same[0]}"
    date = re.match(r"\d{4}-\d\d-\d\d", results["finished"])
    digest = hashlib.sha256(repr(sorted(here.items())).encode()).hexdigest()
    return f"{RAW_FOLDER}/{date[0] if date else 'undated'}-{model_key(results)[:8]}-{digest[:8]}"


def _completed(card: bytes | None, results: Results, target: HubTarget, section: str) -> str:
    """Return the card with the results. `card` is the present one, or None."""
    name, model, limited = target.repo_id.split("/")[-1], model_key(results), results["limit"] is not None
    names, lines = list(results["benchmarks"]), [] if limited else index_lines(results)
    try:
        content = f"# Model Card for {name}\n" if card is None else card.decode("utf-8-sig")
        former = [*results_of_others(content, model), *([] if limited else names)]
        if former:
            content = with_index(content, lines, name, index_places(former))
    except (ValueError, yaml.YAMLError) as error:
        raise Refused(
            f"The card of {target}, {CARD_FILE}, cannot be read: {error}. Correct it there first."
        ) from error
    return with_results(content, section, model=model, names=names, limited=limited)


def _section(results: Results, raw: str, own: Sequence[str]) -> str:
    command, fence = _command(results["command"]), "```"
    while fence in command:
        fence += "`"
    warning = f"**Only the first {results['limit']} questions of each benchmark: these are not its scores.**"
    parts = [*([] if results["limit"] is None else [warning]), results.table()]
    but = ", except to the user's own questions" if set(own) & results["benchmarks"].keys() else ""
    parts += [f"All answers{but}, settings and versions: [{raw}]({raw}/results.json). The command:"]
    return "\n\n".join([*parts, f"{fence}bash\n{command}\n{fence}"])

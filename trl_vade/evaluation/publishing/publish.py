"""The results of an evaluation on the Hub: in the model's card, and raw beside the checkpoint, in one commit.

    README.md                               a table, and for other programs the `model-index`
    vade_evaluation/<date>-<model>-<runs>/  results.json, results.md, evaluation.json, and the runs that they are of
    .eval_results/<benchmark>.yaml          where the data set says that it is a benchmark, for its leaderboard

The card speaks of the weights beside it, so nothing goes to a repository with another model than was evaluated, and
what earlier calls said of other weights goes, from all three places but the raw runs. A score over the first few
questions is told to people, with a warning, and never to programs.
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
from trl_vade.hub.card_metadata import CARD_FILE, results_of_others, with_index, with_results
from trl_vade.hub.uploading import HubTarget, commit_folder, ensure_repo, with_retries

from ..results.table import Results, read_results
from .leaderboards import FOLDER, index_lines, index_places, leaderboard_entries, merged_files
from .weights import EvaluatedWeights, Refused, model_key

RAW_FOLDER = "vade_evaluation"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "JUDGE_API_KEY", "OPENAI_API_KEY", "VADE_SERVER_API_KEY")
"""Variables of the environment whose values are in no file that is sent."""
LEAST_SECRET = 8
"""Signs of a value that is taken for a secret: the key of a local server is "EMPTY" or "none", words of many texts."""
_TOKEN = re.compile(rb"hf_[A-Za-z0-9]{20,}")
_PLACE = re.compile(r'(^|[=,:;"])(/[^/,;"\n]+/[^,;"\n]*)')  # not /no_think, nor what is after http:


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
    """Publish the finished evaluation in `output` in the model repository `target_repo`; return the commit's address.

    What the card says already stays, but for what an earlier call has put there about the same benchmarks or other
    weights. The runs of an output directory that was published before replace their earlier files. Of paths of this
    machine, in the runs' settings and the command, the last part alone is sent.

    Args:
        output: with the results.json of `summary.write_results`.
        target_repo: "user/name", or "name" for one of your own; it is created where it is missing.
        model_folder: the model that was evaluated. Its card is taken where the repository has none. None: the commit
            in the results tells the weights; where there is none, nothing is compared.
        revision: the branch; None is main.
        private: of a repository that is made.
        allow_limited: publish results over the first few questions: with a warning, and not for other programs.
        publish_samples: also the questions, references and answers of benchmarks on a folder of the user's.

    Raises:
        EvaluationError: the results are not whole, or limited; the folder changed since; the repository has another
            model; a file lacks or has a secret in it; the card there cannot be read. Nothing is published.
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
        kind, after = type(error), error.retry_after  # HubOfflineError stays one
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
        # To a new folder: where the Hub does not answer, the client gives an older file from its cache.
        new = tempfile.mkdtemp(dir=staged)
        return Path(api.hf_hub_download(target.repo_id, path, revision=target.revision, local_dir=new)).read_bytes()

    def render(files: list[str]) -> dict[str, bytes | None]:
        # What is on the branch now. Where that is not any more what the commit is built on, the Hub refuses it.
        evaluated.refuse_others(api, target)
        card = read(CARD_FILE) if CARD_FILE in files else None
        if card is None and readme and readme.is_file():
            card = _without_secrets(readme)
        content = _completed(card, results, target, _section(results, raw, own))
        return {CARD_FILE: content.encode(), **merged_files(entries, files, read, raw)}

    message = f"Evaluation: {', '.join(part['title'] for part in results['benchmarks'].values())}"
    # Of the folder that is mirrored, a file goes that `merged_files` does not name; one without new content stays.
    return str(commit_folder(target, layout, message=message, render=render, mirror=[FOLDER]).commit_url)


def _how_to_publish_later(output: Path, results: Results, target: HubTarget, model_folder: Path | None) -> str:
    model = str(model_folder or results["model"]["name"])
    words = ["trl-vade", "evaluate", model, "--output_path", str(output), "--push_to_hub", target.repo_id]
    words += ["--hub_revision", target.revision] if target.revision else []
    return (
        f"The results stay in {output}. To publish them later: `{shlex.join(words)}`, with the other options of the "
        "evaluation; finished runs are not repeated."
    )


def _raw_files(output: Path, results: Results, own: Sequence[str]) -> Iterable[str]:
    """The files to publish, by their path in `output`: those of the results' runs, without the samples of `own`."""
    yield from ("results.json", "results.md", "evaluation.json")
    for name, part in results["benchmarks"].items():
        for run in part["runs"]:
            file = PurePosixPath(run["results_file"])
            if file.parts[:1] != ("runs",) or ".." in file.parts or len(file.parts) < 3:
                raise Refused(f"{output / 'results.json'} names {file} as a run's file; it must be in runs/<run>/.")
            yield str(file)
            samples = f"{file.name.removesuffix('results.json')}samples_*.jsonl"
            found = [] if name in own else (output / file.parent).glob(samples)
            yield from (path.relative_to(output).as_posix() for path in found)
            judge = PurePosixPath(*file.parts[:2], "judge.json")
            if name not in own and (output / judge).is_file():  # it may quote an answer
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


def _as_sent(path: str, content: bytes) -> bytes:
    """The content of a file with only the last parts of this machine's paths; lmms-eval writes down many."""
    if not path.endswith(("results.json", "evaluation.json")):
        return content
    try:
        data = json.loads(content)
    except ValueError as error:
        raise Refused(f"{path} is no whole JSON ({error}). Run the evaluation's command again.") from error
    # A system prompt in results.json stays what it is, whatever it begins with.
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
    except ValueError:  # none that a shell could read
        return str(_without_places(command))


def _raw_folder(results: Results, there: Iterable[str], staged: Path) -> str:
    """The folder of the raw results: that of the same runs, where they were published before, else a new one.

    The runs' files have the time in their names: an output directory that has grown since is known again. Another
    evaluation has another folder, also one that is published at the same time.
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
    """The card with the results; `card` is what there is, None where there is none."""
    name, model, limited = target.repo_id.split("/")[-1], model_key(results), results["limit"] is not None
    names, lines = list(results["benchmarks"]), [] if limited else index_lines(results)
    try:
        content = f"# Model Card for {name}\n" if card is None else card.decode("utf-8-sig")
        former = [*results_of_others(content, model), *([] if limited else names)]
        if former:
            content = with_index(content, lines, name, index_places(former))
    except (ValueError, yaml.YAMLError) as error:
        raise Refused(f"The card of {target}, {CARD_FILE}, cannot be read: {error}. Mend it there first.") from error
    return with_results(content, section, model=model, names=names, limited=limited)


def _section(results: Results, raw: str, own: Sequence[str]) -> str:
    command, fence = _command(results["command"]), "```"
    while fence in command:
        fence += "`"
    warning = f"**Only the first {results['limit']} questions of each benchmark: these are no scores of it.**"
    parts = [*([] if results["limit"] is None else [warning]), results.table()]
    but = " but those to questions of the user's own" if set(own) & results["benchmarks"].keys() else ""
    parts += [f"Every answer{but}, settings and versions: [{raw}]({raw}/results.json). The command:"]
    return "\n\n".join([*parts, f"{fence}bash\n{command}\n{fence}"])

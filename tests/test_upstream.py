"""Faults of other libraries: each script prints what its docstring says until the library has mended it."""

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.docs.pages import DOCS, ROOT, table_rows
from tests.engines.on_cpu import ENVIRONMENT

FOLDER = ROOT / "docs" / "upstream"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
TRAINS_IN_VLLM = "use_vllm", "import LLM"
LOGGED = re.compile(r"\{'(?!image_token_id)|\([\w-]+ pid=")  # by the Trainer and by vLLM

# The imports take most of the time of each script: they are forks of one process that has made them.
STARTER = """
import importlib
import os
import runpy
import sys

modules, *paths = sys.argv[1:]
for module in modules.split(","):
    importlib.import_module(module)
for path in paths:
    name = os.path.basename(path)[:-3]
    os.mkdir(name)
    if not os.fork():
        os.chdir(name)
        for file, number in (("printed.txt", 1), ("errors.txt", 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
        runpy.run_path(path, run_name="__main__")
        sys.exit()
    os.wait()
"""


def scripts_of(library):
    """The scripts that need vllm or lmms_eval, which have environments of their own, or None of these."""

    def needed(name):
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        return "lmms_eval" if "lmms_eval" in source else "vllm" if any(w in source for w in TRAINS_IN_VLLM) else None

    return [name for name in SCRIPTS if needed(name) == library]


def run_python(folder, model, *command, **environment):
    """Run Python in a folder, with nothing of this process's environment but its PATH."""
    own = {"HF_HUB_OFFLINE": "1", "HOME": str(folder), "OMP_NUM_THREADS": "1", "MODEL": model}
    env = own | {"PATH": os.environ["PATH"], **environment}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=folder, env=env)


def assert_printed_what_its_docstring_says(name, printed, errors):
    """The docstring ends with what it should print and what it prints, each indented."""
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")))
    expected, printed_before = docstring.split("\n\nExpected:")[1].split("\n\nPrinted:\n")
    lines = [line.strip() for line in printed.splitlines() if not LOGGED.match(line)]
    before = [line.strip() for line in printed_before.splitlines()]
    assert lines == before, f"{name}: {errors[-2000:]}"
    assert [line.strip() for line in expected.strip().splitlines()] != before


def assert_scripts_print_what_they_say(names, folder, model, modules):
    """Run scripts after the import of `modules`, which have commas between them."""
    done = run_python(folder, model, "-c", STARTER, modules, *(str(FOLDER / f"{name}.py") for name in names))
    assert done.returncode == 0, done.stderr[-2000:]
    for name in names:
        told = [(folder / name / file).read_text(encoding="utf-8") for file in ("printed.txt", "errors.txt")]
        assert_printed_what_its_docstring_says(name, *told)


@pytest.mark.slow
def test_trl_and_transformers_still_have_their_faults(vision_model_path, tmp_path):
    assert_scripts_print_what_they_say(scripts_of(None), tmp_path, vision_model_path, "trl.trainer.grpo_trainer")


@pytest.mark.lmms
@pytest.mark.skipif(find_spec("lmms_eval") is None, reason="needs the extra eval")
def test_lmms_eval_still_has_its_faults(vision_model_path, tmp_path):
    modules = "lmms_eval.evaluator,lmms_eval.models.chat.qwen2_5_vl"
    assert_scripts_print_what_they_say(scripts_of("lmms_eval"), tmp_path, vision_model_path, modules)


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs tests/engines/requirements.txt")
@pytest.mark.parametrize("name", scripts_of("vllm"))
def test_vllm_still_has_the_fault(name, vision_model_path, tmp_path):
    command = ["-m", "tests.engines.on_cpu", str(FOLDER / f"{name}.py")]
    done = run_python(tmp_path, vision_model_path, *command, **ENVIRONMENT)
    assert_printed_what_its_docstring_says(name, done.stdout, done.stderr)


@pytest.mark.docs
def test_the_page_has_a_line_for_each_script_with_the_file_that_corrects_the_fault():
    rows = [[cell.strip("`") for cell in row] for row in table_rows(DOCS / "upstream.md")[1:] if row[0] != "---"]
    assert sorted(row[0] for row in rows) == SCRIPTS
    assert [row[3] for row in rows if not (ROOT / "trl_vade" / row[3]).is_file()] == []

"""The faults of other libraries: each script prints what its page says, until the library has mended the fault."""

import os
import re
import subprocess
import sys

import pytest

from tests.docs.commands import fences
from tests.docs.prose import ROOT

FOLDER = ROOT / "docs" / "upstream"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
FACTS = ("Library", "Reported", "Corrected here by", "Switched off")


def facts(name):
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", (FOLDER / f"{name}.md").read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows[1:])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_filed_as_it_is(name):
    path = FOLDER / f"{name}.md"
    (script,), (expected, actual) = fences(path, "py"), fences(path, "text")
    compile(script, name, "exec")
    assert "trl_vade" not in script
    assert expected != actual
    assert tuple(facts(name)) == FACTS
    assert f"]({name}.md)" in (FOLDER / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_code_that_corrects_it_is_where_the_page_says(name):
    words = re.findall(r"`([\w/.]+)`", facts(name)["Corrected here by"])
    source = (ROOT / "trl_vade" / words[-1]).read_text(encoding="utf-8")
    assert all(re.search(rf"(def|class) {part}\b", source) for word in words[:-1] for part in word.split("."))


def run_python(folder, model, *command, **environment):
    """Run Python in a folder, with nothing of this process's environment but its PATH."""
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"HF_HUB_OFFLINE": "1", "HOME": str(folder), "OMP_NUM_THREADS": "1", "MODEL": model}
        | {"PATH": os.environ["PATH"], **environment},
    )


# The imports take most of the time of each script: they are forks of one process that has made them.
STARTER = """
import importlib
import os
import runpy
import sys

modules, *names = sys.argv[1:]
for module in modules.split(","):
    importlib.import_module(module)
for name in names:
    if not os.fork():
        os.chdir(name)
        for file, number in (("printed.txt", 1), ("errors.txt", 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
        runpy.run_path("script.py", run_name="__main__")
        sys.exit()
    os.wait()
"""


def write_script(name, folder):
    (script,) = fences(FOLDER / f"{name}.md", "py")
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(script, encoding="utf-8")


def assert_is_what_its_page_says(name, printed, errors):
    (_, actual) = fences(FOLDER / f"{name}.md", "text")
    logged = re.compile(r"\{'(?!image_token_id)|\([\w-]+ pid=")  # by the Trainer and by vLLM
    lines = [line for line in printed.splitlines(keepends=True) if not logged.match(line)]
    assert "".join(lines) == actual, f"{name}: {errors[-2000:]}"


def assert_scripts_print_what_their_pages_say(names, folder, model, modules):
    """Run the scripts of the pages `names`, after the import of `modules`, which have commas between them."""
    for name in names:
        write_script(name, folder / name)
    done = run_python(folder, model, "-c", STARTER, modules, *names)
    assert done.returncode == 0, done.stderr[-2000:]
    for name in names:
        told = [(folder / name / file).read_text(encoding="utf-8") for file in ("printed.txt", "errors.txt")]
        assert_is_what_its_page_says(name, *told)


def pages_that_need(library):
    """The pages whose script needs vllm or lmms_eval, which have environments of their own, or None of these."""
    of_library = {"vllm": ("import LLM", "use_vllm"), "lmms_eval": ("lmms_eval",)}

    def needed(name):
        script = fences(FOLDER / f"{name}.md", "py")[0]
        return next((each for each, words in of_library.items() if any(word in script for word in words)), None)

    return [name for name in PAGES if needed(name) == library]


@pytest.mark.slow
def test_the_stock_libraries_still_have_their_faults(vision_model_path, tmp_path):
    names = pages_that_need(None)
    assert_scripts_print_what_their_pages_say(names, tmp_path, vision_model_path, "trl.trainer.grpo_trainer")

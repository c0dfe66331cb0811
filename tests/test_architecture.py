"""Imports point one way, and the core is light: read from the sources, and seen in fresh interpreters."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trl_vade

PACKAGE = Path(trl_vade.__file__).parent
REPOSITORY = PACKAGE.parent

# A module may import those on lines above its own, and nothing beside or below it.
ORDER = [
    ["errors", "durable", "main_process", "staging", "card_templates", "key_worker", "row_values"],
    ["checks", "document", "presets", "repeats", "hub_errors", "hub_commit", "key_processes", "stored_images"],
    ["posterior_state", "order", "prompt_sampler", "prior", "window", "hub"],
    ["row_store", "rules", "strata", "push_queue"],
    ["posterior"],
    ["information", "outage", "posterior_sampler", "free_rows", "posterior_columns"],
    ["uniform", "large_pool"],
    ["samplers"],
    ["snapshot", "peers"],
    ["config", "feedback", "data", "join", "sampler_choice", "posterior_table"],
    ["prompt_length", "sample_ids", "posterior_facts", "pass_rates"],
    ["preflight", "selection_log", "decoding", "notices", "rounds", "gradients", "posterior_repo"],
    ["loading", "posterior_card", "run"],
    ["posterior_source"],
    ["selection", "request_seeds", "warm_start", "report_picture"],
    ["colocated", "report"],
    [
        "ahead",
        "generation",
        "callbacks",
        "generation_batch",
        "preemption",
        "weights",
        "complete",
        "refill",
        "initial_rollouts",
    ],
    ["checkpoint", "uploads"],
    ["run_facts", "card_metadata"],
    ["model_card", "publication"],
    ["publishing"],
    ["trainer"],
]
CORE = [
    "errors",
    "durable",
    "checks",
    "document",
    "posterior_state",
    "row_store",
    "posterior",
    "posterior_sampler",
    "order",
    "prior",
    "strata",
    "prompt_sampler",
    "information",
    "outage",
    "window",
    "free_rows",
    "large_pool",
    "uniform",
    "samplers",
    "snapshot",
    "join",
]
# Edges stand beside the order. Each may import what is listed here and no other module of the package.
EDGES = {
    "plan": ["config", "errors", "presets"],
    "plan_report": ["launch", "memory", "plan"],
    "launch": ["errors"],
    "model_shape": ["errors"],
    "memory_parts": ["launch", "model_shape"],
    "memory": ["errors", "launch", "memory_parts", "model_shape"],
    "answers": [],
    "quantities": [],
    "expression_worker": [],
    "expressions": ["errors"],
    "verifiers": ["answers", "checks", "errors", "expressions", "quantities"],
    "rewards": ["answers", "checks", "errors", "expressions", "verifiers"],
    "sources": ["errors"],
    "question_text": [],
    "conversations": ["answers", "quantities", "question_text", "verifiers"],
    "overlap": ["errors", "question_text", "sources"],
    "mixture_rows": ["conversations", "overlap", "sources"],
    "mixture_parts": ["durable", "errors", "mixture_rows", "overlap", "sources"],
    "mixture_card": ["card_templates"],
    "mixture": [
        *("durable", "errors", "mixture_card", "mixture_parts", "mixture_rows"),
        *("overlap", "question_text", "sources"),
    ],
    "tables": [],
    "script_arguments": ["errors", "testbed"],
    "planning": [
        *("benchmarks", "data", "errors", "launch", "memory", "model_shape"),
        *("plan", "plan_report", "script_arguments", "tables"),
    ],
    "posterior_views": ["checks", "errors", "pass_rates", "posterior_columns", "posterior_table", "sample_ids"],
    "posterior_printing": ["pass_rates", "posterior_table", "posterior_views", "tables"],
    "posterior_files": [
        *("checks", "data", "durable", "errors", "posterior_repo", "posterior_source", "posterior_table"),
        *("posterior_views", "run_facts", "sample_ids", "snapshot"),
    ],
    "cli_posterior": [
        *("posterior_files", "posterior_printing", "posterior_repo", "posterior_source", "posterior_views"),
    ],
    "benchmarks": ["errors"],
    "eval_table": ["benchmarks", "card_templates", "checks", "errors"],
    "eval_samples": ["benchmarks", "checks", "errors"],
    "eval_runs": ["benchmarks", "checks", "errors", "eval_samples"],
    "eval_results": ["benchmarks", "durable", "errors", "eval_runs", "eval_table"],
    "eval_address": [],
    "eval_judge": ["checks", "errors", "eval_address"],
    "eval_guard": ["checks", "errors", "eval_judge"],
    "eval_model": ["errors", "eval_address"],
    "lmms_scoring": ["answers", "lmms_runner", "rewards", "testbed"],
    "lmms_tasks": ["benchmarks", "checks", "errors", "lmms_scoring", "testbed"],
    "lmms_runner": ["errors", "eval_guard"],
    "lmms_policy": ["errors"],
    "eval_settings": [
        *("benchmarks", "checks", "errors", "eval_judge", "eval_model", "hub", "lmms_tasks", "mixture_rows"),
    ],
    "lmms_inside": ["benchmarks", "eval_settings", "lmms_runner", "lmms_tasks"],
    "eval_process": ["errors", "eval_guard"],
    "eval_directory": ["benchmarks", "durable", "errors", "eval_model", "eval_runs", "eval_settings"],
    "evaluation": [
        *("benchmarks", "errors", "eval_address", "eval_directory", "eval_model", "eval_process", "eval_results"),
        *("eval_runs", "eval_settings", "lmms_tasks"),
    ],
    "eval_callback": [
        *("benchmarks", "checks", "errors", "eval_settings", "lmms_inside", "lmms_policy", "lmms_tasks"),
        "preemption",
    ],
    "eval_weights": ["errors", "eval_model", "hub"],
    "eval_leaderboards": ["benchmarks", "card_metadata", "errors", "hub"],
    "eval_publishing": [
        *("benchmarks", "card_metadata", "errors", "eval_leaderboards", "eval_model", "eval_table", "eval_weights"),
        "hub",
    ],
    "cli_evaluate": [
        *("eval_judge", "eval_publishing", "eval_settings", "evaluation", "hub", "lmms_tasks", "testbed"),
    ],
    "cli": ["cli_evaluate", "cli_posterior", "errors", "planning", "report", "tables"],
}
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
TOP = {"trainer"}  # imported by `__init__` alone, which loads it on first use


def name_of(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") or "__init__"


SOURCES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FLAT = sorted(name for name in SOURCES if "." not in name and name not in ("testbed", "__init__"))
TESTBED = sorted(name for name in SOURCES if name.split(".")[0] == "testbed")
PEERS = sorted(name for name in SOURCES if name.split(".")[0] == "peers")


def executed(tree):
    """All nodes but the bodies of `if TYPE_CHECKING`, which only type checkers read."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending.extend(node.orelse)
        else:
            pending.extend(ast.iter_child_nodes(node))


def imports(path, package_name):
    """Absolute names of all that the file imports, anywhere in it; `from a import b` gives `a` and `a.b`."""
    names = set()
    for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package_name.split(".")[: len(package_name.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


def imports_of(name):
    path = SOURCES[name]
    return imports(path, ".".join(["trl_vade", *path.relative_to(PACKAGE).parent.parts]))


def modules_of_the_package(name):
    """Modules of trl_vade that module `name` imports, by their first name below the package."""
    below = {full.split(".")[1] for full in imports_of(name) if full.startswith("trl_vade.")}
    return {module for module in below if module in SOURCES}


def test_every_module_has_its_place():
    """A new module fails here until it is put into `ORDER` or `EDGES`: decide what it may know of the others."""
    assert [name for name in FLAT if name not in RANK and name not in EDGES] == []
    assert [name for name in [*RANK, *EDGES] if name not in SOURCES] == []


@pytest.mark.parametrize("name", [name for name in FLAT if name in RANK])
def test_a_module_imports_only_modules_before_it(name):
    allowed = {other for other, rank in RANK.items() if rank < RANK[name]} | {name}  # a package imports its own files
    assert modules_of_the_package(name) <= allowed


@pytest.mark.parametrize("name", sorted(EDGES))
def test_an_edge_imports_only_what_it_is_allowed(name):
    assert modules_of_the_package(name) <= set(EDGES[name])


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_nothing_in_the_package_imports_the_trainer(name):
    assert not modules_of_the_package(name) & TOP


@pytest.mark.parametrize("name", PEERS)
def test_the_peers_know_the_core_and_nothing_else(name):
    assert modules_of_the_package(name) <= {*CORE, "peers"}


@pytest.mark.parametrize("name", [*CORE, *PEERS])
def test_the_core_imports_numpy_safetensors_and_the_standard_library_only(name):
    roots = {full.split(".")[0] for full in imports_of(name)}
    assert roots - sys.stdlib_module_names <= {"numpy", "safetensors", "trl_vade"}


@pytest.mark.parametrize("name", TESTBED)
def test_the_testbed_knows_nothing_of_the_trainer_side(name):
    assert modules_of_the_package(name) <= {"testbed", "errors"}
    assert "trl" not in {full.split(".")[0] for full in imports_of(name)}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_the_package_never_imports_scripts_evaluation_or_tests(name):
    assert not {full.split(".")[0] for full in imports_of(name)} & {"scripts", "eval", "tests", "conftest"}


def test_no_module_of_the_package_reaches_into_the_repository_around_it():
    for name, path in SOURCES.items():
        depth = len(path.relative_to(PACKAGE).parent.parts)
        levels = [
            node.level
            for node in executed(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
        ]
        assert max(levels, default=0) <= depth + 1, name


def test_these_checks_see_what_they_forbid(tmp_path):
    """Each way of writing an import is seen, and one that only type checkers read is not."""
    path = tmp_path / "module.py"
    path.write_text(
        "import trl_vade.config\nfrom . import samplers\nfrom .trainer import X\nfrom ..scripts import y\n"
        "from trl_vade import snapshot\n"
        "def f():\n    from .selection import Z\n"
        "if TYPE_CHECKING:\n    from .report import Run\n",
        encoding="utf-8",
    )
    seen = imports(path, "trl_vade")
    assert {"trl_vade.config", "trl_vade.samplers", "trl_vade.trainer", "trl_vade.snapshot"} <= seen
    assert {"trl_vade.selection", "scripts", "scripts.y"} <= seen
    assert not [full for full in seen if "report" in full]


# ------------------------------------------------------------------------------------------- in a fresh interpreter

HEAVY = ("torch", "trl", "transformers", "datasets", "accelerate", "PIL", "matplotlib", "scipy")


@pytest.mark.parametrize(
    "module", ["trl_vade", "trl_vade.testbed", "trl_vade.peers", *(f"trl_vade.{name}" for name in CORE)]
)
def test_importing_it_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


def test_the_core_can_be_used_without_loading_anything_heavy(tmp_path):
    """A whole turn through the public names: draw, observe, save, load."""
    code = (
        "import sys, trl_vade as v; s = v.ThompsonSampler(9);"
        "s.observe(s.draw(2).sample_index, [1, 0], [2, 2]);"
        f"v.save_snapshot({str(tmp_path)!r}, s); s.load_state_dict(v.load_snapshot({str(tmp_path)!r}).sampler_state);"
        f"print(s.posterior.step, *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["1"]


def test_a_report_can_be_read_without_torch_and_without_matplotlib():
    code = "import sys; from trl_vade.report import read_run, summarise; "
    code += "print(*[name for name in ('torch', 'trl', 'matplotlib') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []

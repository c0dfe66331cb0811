"""lmms-eval in the tests' own process: it reads the address of its judge when it is imported, and so only once."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from tests.support.loopback_judge import LoopbackJudge
from trl_vade.evaluation.corrections import close_eval
from trl_vade.evaluation.judge import Judge

SECRET = "sk-secret-4711"
collect_ignore_glob = [] if find_spec("lmms_eval") else ["test_*.py"]  # it is in an environment of its own


@pytest.fixture(scope="session")
def server():
    with LoopbackJudge(key=SECRET) as judge:
        yield judge


@pytest.fixture(scope="session")
def lmms(server):
    """lmms-eval's own scoring of the three tasks, imported with the judge's variables, as its own process does it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE_API_KEY", SECRET)
        for name, value in Judge(server.url, server.model).environment().items():
            patch.setenv(name, value)
        close_eval()
        from lmms_eval.llm_judge.base import ServerInterface
        from lmms_eval.llm_judge.providers.openai import OpenAIProvider
        from lmms_eval.tasks.mathverse.mathverse_evals import MathVerseEvaluator
        from lmms_eval.tasks.mathvision.utils import mathvision_gpt_eval_process_results as mathvision
        from lmms_eval.tasks.mathvista.mathvista_evals import MathVistaEvaluator

        stock = OpenAIProvider.evaluate, ServerInterface.evaluate_binary
        yield SimpleNamespace(mathvista=MathVistaEvaluator(), mathverse=MathVerseEvaluator(), mathvision=mathvision)
        OpenAIProvider.evaluate, ServerInterface.evaluate_binary = stock

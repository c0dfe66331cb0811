"""lmms-eval 0.7.3: MathVision's rules execute the model's answer.

The rules pass an answer through latex2sympy to Python's `eval`. The text of a model is then a program.

Expected: nothing

Printed:
    an answer was executed
"""

import sys
from types import SimpleNamespace

sys.modules["latex2sympy2"] = SimpleNamespace(latex2sympy=str)  # it cannot be imported beside math-verify 0.9.0
from lmms_eval.tasks.mathvision.eval_utils import is_equal  # noqa: E402

is_equal("print('an answer was executed')", "1")

"""lmms-eval 0.7.3: MathVista: no float is right, and no answer is a choice.

`precision` is a float in the data set, which `round` refuses. An empty extraction becomes the choice with the
smallest edit distance, which may be right.

Expected:
    a float: 1.25
    no answer: None

Printed:
    a float: None
    no answer: no
"""

import os

os.environ.setdefault("OPENAI_API_KEY", "none")  # the evaluator makes a client

from lmms_eval.tasks.mathvista.mathvista_evals import MathVistaEvaluator

evaluator = MathVistaEvaluator()
# In the data set `precision` is a float.
print("a float:", evaluator.normalize_extracted_answer("1.25", None, "free_form", "float", 2.0))
print("no answer:", evaluator.normalize_extracted_answer("", ["yes", "no"], "multi_choice", "text", None))

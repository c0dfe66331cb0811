"""lmms-eval 0.7.3: an evaluation goes on with a judge that cannot be reached.

Errors of the judge become an empty answer. Every question is then wrong, and the score is 0.

Expected:
    ConnectionError

Printed:
    extracted by a judge that cannot be reached: ''
"""

import os

os.environ["OPENAI_API_URL"], os.environ["OPENAI_API_KEY"] = "http://127.0.0.1:1/v1", "none"  # nothing listens there

from lmms_eval.tasks.mathvista.mathvista_evals import MathVistaEvaluator  # noqa: E402
from loguru import logger  # noqa: E402

logger.remove()
found = MathVistaEvaluator().get_chat_response("Extract the answer: it is two.", patience=1)
print("extracted by a judge that cannot be reached:", repr(found))

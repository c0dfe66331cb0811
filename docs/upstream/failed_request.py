"""lmms-eval 0.7.3: the error of a request is scored as the model's answer.

A request that failed has an answer of text. It is wrong in most benchmarks, and nothing counts it.

Expected:
    APIConnectionError

Printed:
    the answer to score: [LMMS_EVAL_REQUEST_FAILED after 1 retries] Connection error.
"""

from lmms_eval.api.instance import Instance
from lmms_eval.models.chat.openai import OpenAICompatible
from loguru import logger

logger.remove()
address = "http://127.0.0.1:1/v1"  # nothing listens there
model = OpenAICompatible("mine", base_url=address, api_key="none", max_retries=1, retry_backoff_s=0)
model.task_dict = {"mine": {"test": [{}]}}
messages = [{"role": "user", "content": [{"type": "text", "text": "What is 1 + 1?"}]}]
arguments = ("", lambda row: messages, {"max_new_tokens": 1}, 0, "mine", "test")
request = Instance("generate_until", arguments, 0, metadata={"task": "mine", "doc_id": 0, "repeats": 1})
print("the answer to score:", model.generate_until([request])[0].text)

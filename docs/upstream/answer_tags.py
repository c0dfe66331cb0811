"""lmms-eval 0.7.3: an answer inside tags is wrong.

Models that were trained to think answer inside tags. `--reasoning_tags` can remove what was thought, and not
the tags of the answer.

Expected:
    42 scores 1.0
    <think>6 x 7</think><answer>42</answer> scores 1.0

Printed:
    42 scores 1.0
    <think>6 x 7</think><answer>42</answer> scores 0.0
"""

from lmms_eval.tasks.chartqa.utils import chartqa_process_results

row = {"answer": "42", "type": "human_test"}
for answer in ("42", "<think>6 x 7</think><answer>42</answer>"):
    print(answer, "scores", chartqa_process_results(row, [answer])["relaxed_overall"])

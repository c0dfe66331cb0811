"""Evaluate a model on benchmarks by lmms-eval: `trl-vade evaluate`, as a script.

    python scripts/evaluate.py testbed --tasks testbed --output_path results     # minutes on a CPU, no download
    python scripts/evaluate.py you/qwen-vade --output_path results --backend vllm \
        --judge_url http://judge:8000/v1 --judge_model Qwen/Qwen2.5-72B-Instruct
    python scripts/evaluate.py --help                                            # every option
"""

import sys

from trl_vade.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "evaluate")
    main()

"""Train a vision-language model by GRPO with prompts chosen by VADE: `trl-vade train`, as a script.

accelerate launch scripts/train_vade.py                             # the quickstart: minutes on a CPU
accelerate launch scripts/train_vade.py --vade_sampler uniform      # the same with vanilla GRPO
accelerate launch scripts/train_vade.py --recipe NAME               # a recipe of the package
accelerate launch scripts/train_vade.py --config recipe.yaml        # your recipe; flags go before its values
python scripts/train_vade.py --help                                 # the options; --help-all shows every one
"""

import sys
from pathlib import Path

from trl_vade.cli.main import main

if __name__ == "__main__":
    # Python put this folder first, and `import evaluate` of a reward would find the script of that name.
    sys.path[:] = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]
    main(["train", *sys.argv[1:]])

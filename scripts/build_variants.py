"""Build a data set of originals and their variants: `trl-vade variants`, as a script.

python scripts/build_variants.py testbed --output_dir variants --kinds rotation-1,gaussian-2,drawn
python scripts/build_variants.py you/questions --output_dir variants --kinds text,hint-1,hint-2 \\
    --endpoint http://127.0.0.1:8000/v1 --model Qwen/Qwen2.5-VL-72B-Instruct
python scripts/build_variants.py --help                             # every option
"""

import sys
from pathlib import Path

from trl_vade.cli.main import app

if __name__ == "__main__":
    # Python put this folder first, and lmms-eval's `import evaluate` would find the script of that name.
    sys.path[:] = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]
    app(["variants", *sys.argv[1:]], prog_name="build_variants.py")

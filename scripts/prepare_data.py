"""Make the paper's training mixture (VADE, arXiv 2511.18902, Table 3) from its sources on the Hub.

    python scripts/prepare_data.py --dry_run                            # sources, revisions, counts; loads nothing
    python scripts/prepare_data.py                                      # data/vade-mixture: 8,524 + 947 rows
    python scripts/prepare_data.py --evaluation_data AI4Math/MathVista@testmini lmms-lab/ChartQA@test
    python scripts/prepare_data.py --mirror copies                      # from copies/<repository>, without a network
    python scripts/prepare_data.py --push_to_hub you/vade-mixture --private

About 4.9 GB of files go into the cache of the Hub's client. The same command goes on after an interruption. It ends
with a table of rows by source; mixture.html beside the data shows examples. `load_dataset("data/vade-mixture")` reads
the result. **This project has run this only on stand-ins with the schemas of the sources, not on the real sources.**
`scripts/mixture/sources.py` says what is known of them, docs/guides/recipes.md why rows are dropped.
"""

import sys

from mixture.command import main

if __name__ == "__main__":
    main(sys.argv[1:])

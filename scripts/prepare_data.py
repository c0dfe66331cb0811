"""Make the paper's training mixture (VADE, arXiv 2511.18902, Table 3) from its sources on the Hub.

    python scripts/prepare_data.py --dry_run                            # sources, revisions, counts; loads nothing
    python scripts/prepare_data.py                                      # data/vade-mixture: 8,524 + 947 rows
    python scripts/prepare_data.py --evaluation_data AI4Math/MathVista@testmini lmms-lab/ChartQA@test
    python scripts/prepare_data.py --mirror copies                      # from copies/<repository>, without a network
    python scripts/prepare_data.py --push_to_hub you/vade-mixture --private

The sources are streamed, some gigabytes in all, and only the chosen rows are kept. The same command continues an
interrupted build. `load_dataset("data/vade-mixture")` reads the result. Its README.md counts the rows that were read,
dropped and taken. **This project has run this only on stand-ins with the schemas of the sources, not on the real
sources.** `scripts/mixture/sources.py` says what is known of them.
"""

import sys

from mixture.command import main

if __name__ == "__main__":
    main(sys.argv[1:])

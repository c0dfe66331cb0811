"""Make the paper's training mixture (VADE, arXiv 2511.18902, Table 3) from its sources on the Hub.

    python scripts/prepare_data.py --dry_run                            # sources, revisions, counts; loads nothing
    python scripts/prepare_data.py                                      # data/vade-mixture: 8,524 + 947 rows
    python scripts/prepare_data.py --evaluation_data AI4Math/MathVista@testmini lmms-lab/ChartQA@test
    python scripts/prepare_data.py --mirror copies                      # from copies/<repository>, without a network
    python scripts/prepare_data.py --push_to_hub you/vade-mixture --private

The sources are streamed: of each, only the rows that are taken are kept (what is read is some gigabytes). A build
that was interrupted goes on from where it was by the same command. The result is read by
`load_dataset("data/vade-mixture")`, and its README.md says what was read, dropped and taken. **This project has not
run this on the real sources, only on stand-ins with their schemas**; what is known of them is in
`scripts/mixture/sources.py`.
"""

import sys

from mixture.command import main

if __name__ == "__main__":
    main(sys.argv[1:])

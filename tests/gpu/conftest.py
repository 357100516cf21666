"""A share of the tests: compiling kernels is the processor's work, and it has many cores.

``EXPACC_SHARE=2/8`` is the second of eight shares; ``make test-gpu`` runs all of them side by side.
"""

import os


def pytest_collection_modifyitems(config, items):
    share = os.environ.get("EXPACC_SHARE")
    if share:
        place, shares = map(int, share.split("/"))
        mine = items[place - 1 :: shares]
        config.hook.pytest_deselected(items=[item for item in items if item not in mine])
        items[:] = mine

"""What loading leaves behind need not be looked through again and again."""

from __future__ import annotations

import gc


def settle() -> None:
    """To be called when something large has been loaded: everything that is alive now counts as here to stay.

    Python looks through all of its objects now and then, and nothing else runs meanwhile: with the modules of an engine (torch!) in the
    process that takes a quarter of a second, which every call hears. Afterwards only what is newer is looked through. What is frozen is
    freed as ever when its last reference goes; only circles among it are not found any more.
    """
    gc.collect()
    gc.freeze()

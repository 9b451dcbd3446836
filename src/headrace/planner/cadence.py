"""When decisions that cost something are taken again, and what is dear to count is counted.

One rhythm for all of them: often while little is known of the streams, then now and then.
"""

from __future__ import annotations

#: Epochs between two looks, once the first are over.
EVERY = 16


def is_due(epoch: int) -> bool:
    """Whether this is an epoch after which plans are looked at again.

    >>> [epoch for epoch in range(1, 50) if is_due(epoch)]
    [1, 2, 4, 8, 16, 32, 48]
    """
    return epoch % EVERY == 0 if epoch > EVERY // 2 else epoch in (1, 2, 4, 8)

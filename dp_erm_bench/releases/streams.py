"""Seeds of random streams, one stream per trial and purpose."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Seeds = NDArray[np.uint32]


def stream_seeds(identities: Sequence[str], purpose: str) -> Seeds:
    """Return the 128-bit seeds of the trials' streams for one purpose, shape (B, 4).

    A stream depends only on the identity of the trial and the purpose. So the draws of
    a trial do not depend on its batch, its process or the order of trials. Two trials
    that differ in anything share no draw, so that no difference of two results cancels
    their noise.

    Parameters
    ----------
    identities : sequence of str
        One per trial: a digest of all that determines it, or 128 secret bits.
    purpose : str
        The name of the release, or of a public quantity that is drawn.
    """
    texts = (f"{identity}/{purpose}".encode() for identity in identities)
    digests = b"".join(hashlib.sha256(text).digest()[:16] for text in texts)
    return np.frombuffer(digests, dtype="<u4").reshape(-1, 4).astype(np.uint32)

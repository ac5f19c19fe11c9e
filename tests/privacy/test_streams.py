"""Test that a stream depends on identity and purpose alone, and none are equal."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.streams import stream_seeds

IDENTITIES = [hashlib.sha256(bytes([i])).hexdigest() for i in range(30)]
PURPOSES = ["select", "measure", "gradient", "gradient/sample", "order"]
hexadecimal = st.text("0123456789abcdef", min_size=1, max_size=64)


def test_seeds_are_128_bits_of_a_digest():
    seeds = stream_seeds(IDENTITIES, "measure")
    assert seeds.shape == (30, 4) and seeds.dtype == np.uint32
    for identity, seed in zip(IDENTITIES, seeds, strict=True):
        digest = hashlib.sha256(f"{identity}/measure".encode()).digest()
        words = [int.from_bytes(digest[k : k + 4], "little") for k in (0, 4, 8, 12)]
        assert seed.tolist() == words


@given(st.lists(hexadecimal, min_size=1, max_size=6), st.sampled_from(PURPOSES))
def test_seeds_do_not_depend_on_the_batch(identities, purpose):
    together = stream_seeds(identities, purpose)
    alone = [stream_seeds([identity], purpose)[0].tolist() for identity in identities]
    assert together.tolist() == alone


def test_no_two_trials_or_purposes_share_a_seed():
    seeds = np.concatenate([stream_seeds(IDENTITIES, purpose) for purpose in PURPOSES])
    assert len({tuple(seed) for seed in seeds.tolist()}) == len(IDENTITIES) * len(
        PURPOSES
    )


@pytest.mark.parametrize("purpose", PURPOSES)
def test_streams_of_trials_are_independent(purpose):
    seeds = stream_seeds(IDENTITIES, purpose)
    u = np.stack([uniforms(seed, 0, 2000) for seed in seeds])
    assert np.unique(u).size == u.size
    correlations = np.corrcoef(u)[np.triu_indices(len(IDENTITIES), 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(2000)


def test_streams_of_purposes_are_independent():
    u = [uniforms(stream_seeds(IDENTITIES[:1], p)[0], 0, 20_000) for p in PURPOSES]
    assert np.unique(u).size == 20_000 * len(PURPOSES)
    correlations = np.corrcoef(u)[np.triu_indices(len(PURPOSES), 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(20_000)

"""Stochastic steps without noise over sparse rows, at a cost of their non-zeros.

Coordinates that no record has changed are neither stored nor read. Coordinates that a
prox or a projection sets to zero are dropped. The iterate is a scale times the stored
values. So an l2 penalty shrinks all of them by one product (Shalev-Shwartz, Singer,
Srebro, "Pegasos", ICML 2007, section 2).
"""

from typing import Any

import numpy as np

from dp_erm_bench.kernels.compiled import Array, Indices, kernel
from dp_erm_bench.kernels.projections import SIMPLEX, WHOLE_SPACE, project, prox
from dp_erm_bench.kernels.stochastic import Place, clipped_derivative

Support = tuple[Indices, Indices]  # place of a coordinate or -1, coordinate of a place

# With more features than this per entry of a batch, a step walks its entries only.
_SPARSE = 32
# Scales below this are multiplied into the values, long before squares overflow.
_SMALL = 1e-30


@kernel
def few_entries(rows: Any, p: int, offsets: Indices) -> bool:
    """Return whether the batches are so sparse that ``quiet_steps`` is faster.

    Parameters
    ----------
    rows : (data, indices, indptr)
        The features by rows.
    p : int
        Number of features.
    offsets : int array of shape (k + 1,)
        Start of the batch of each step, and end of the last batch.
    """
    indptr, steps = rows[2], offsets.size - 1
    per_record = indptr[-1] / (indptr.size - 1)
    return bool(_SPARSE * per_record * (offsets[-1] - offsets[0]) < p * steps)


@kernel
def quiet_steps(
    loss: Any, data: Any, psi: Array, at: Place, batches: Any, scales: Any
) -> None:
    """Make k proximal stochastic gradient steps without noise, in place.

    The steps are those of ``stochastic.stochastic_steps``.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms)
        The features by rows; their labels and the norms of the rows, shape (n,).
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    at : (w, (code, radius))
        The iterate, shape (p,), which is changed, and the constraint.
    batches : (records, offsets)
        Step t uses ``records[offsets[t]:offsets[t + 1]]``.
    scales : (clip, steps, expected)
        Clipping threshold, step sizes, shape (k,), and the expected batch size.
    """
    records, offsets = batches
    clip, steps, expected = scales
    w, domain = at
    # A set that moves zeros, or does not contain zero, needs every coordinate.
    everything = domain[0] == SIMPLEX or psi[2] > 0.0 or psi[3] < 0.0
    shrinks = psi[0] == 0.0 and psi[2] == -np.inf and psi[3] == np.inf
    drops = not everything and (psi[0] > 0.0 or domain[0] != WHOLE_SPACE)
    support = np.full(w.size, -1), np.empty(w.size, np.int64)
    v, g, scale, count = np.zeros(w.size), np.zeros(w.size), 1.0, 0
    for j in range(w.size):
        if everything or w[j] != 0.0:
            v[count] = w[j]
            count = _enter_support(support, j, count)
    for t in range(steps.size):
        batch = records[offsets[t] : offsets[t + 1]]
        count = _add_gradients(loss, data, batch, (v, scale, clip), g, support, count)
        _descend_rows(data[0], batch, v, g, support, steps[t] / (expected * scale))
        if shrinks:
            scale /= 1.0 + steps[t] * psi[1]
        else:
            for k in range(count):
                v[k] = prox(v[k], steps[t], psi)
        if scale < _SMALL:
            for k in range(count):
                v[k] *= scale
            scale = 1.0
        if domain[0] != WHOLE_SPACE:
            project((domain[0], domain[1] / scale), v[:count])
        if drops:
            count = _drop_zeros(support, v, count)
    w[:] = 0.0
    for k in range(count):
        w[support[1][k]] = scale * v[k]


@kernel
def _enter_support(support: Support, j: int, count: int) -> int:
    """Store a coordinate at the next place; return the new number of places."""
    places, coordinates = support
    places[j], coordinates[count] = count, j
    return count + 1


@kernel
def _add_gradients(
    loss: Any,
    data: Any,
    batch: Indices,
    at: Any,
    g: Array,
    support: Support,
    count: int,
) -> int:
    """Add clipped gradients of records to g; return the new number of places."""
    (entries, indices, indptr), y, norms = data
    v, scale, clip = at
    places = support[0]
    for i in batch:
        z = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            place = places[np.uintp(indices[k])]
            if place >= 0:
                z += entries[k] * v[np.uintp(place)]
        r = clipped_derivative(loss, y[i], scale * z, norms[i], clip)
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if places[j] < 0:
                v[count] = 0.0
                count = _enter_support(support, j, count)
            g[np.uintp(places[j])] += r * entries[k]
    return count


@kernel
def _descend_rows(
    rows: Any, batch: Indices, v: Array, g: Array, support: Support, step: float
) -> None:
    """Subtract step * g from v at the places of the records, and zero g there."""
    _, indices, indptr = rows
    for i in batch:
        for k in range(indptr[i], indptr[i + 1]):
            place = np.uintp(support[0][np.uintp(indices[k])])
            v[place] -= step * g[place]
            g[place] = 0.0


@kernel
def _drop_zeros(support: Support, v: Array, count: int) -> int:
    """Drop zeros and close the gaps; return the new number of places."""
    places, coordinates = support
    k = 0
    while k < count:
        if v[k] == 0.0:
            count -= 1
            last = coordinates[count]
            places[coordinates[k]] = -1
            if k < count:
                v[k], coordinates[k], places[last] = v[count], last, k
        else:
            k += 1
    return count

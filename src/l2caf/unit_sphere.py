"""Least squares on the unit sphere, in plain arrays: the unit f that minimises ||J f - t||^2, globally.

With G = J^T J and g = J^T t the minimum solves (G + lam I) f = g, ||f|| = 1, for the one lam >= -(least eigenvalue of
G) at which the norm is 1 (a trust-region problem; lam may have either sign). For t = J 1, the untouched output, lam > 0
and the optimum is unique, unless the part of 1 that J can see is itself shorter than 1. That is the hard case: the norm
stays below 1 down to the least eigenvalue, and what is missing is filled up in the directions of that eigenvalue, as
near to the filter 1 as can be; or, where what J cannot see is to stay zero, it is left out, and ||f|| < 1.

Two ways: `by_eigenvalues` takes everything apart and is never wrong; `in_span` needs a few products with G alone, in a
subspace that they span, and certifies what it found by the residual.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST_STEPS = 100  # of Newton's method; some five are enough where its steps have the right sign
TINY = 1e-300  # so that nothing is divided by zero
# With so few outputs or positions, taking everything apart costs less than a product.
FEW = 32
# On photographs, three products reach single precision; what is not there after twelve is taken apart.
FIRST_LOOK, MOST_PRODUCTS = 3, 12
ROUGH = 1e-4  # where a filter need not be better than this, the first product is looked at already
# A filter is certain where its error is below so many units of rounding: 8e-6 in single precision.
CERTAIN = 64
# A filter that varies by less than this share of its largest weight shows nothing.
FLAT = 0.02


def in_span(gradient: Floats, product: Callable[[Floats], Floats], precision: float) -> Spanned:
    """Minimise over the span of g, G g, G^2 g, ...: the best filter there is soon the best of all.

    `gradient` is g, (B, n), and `product` gives G f for (B, n) filters; all samples take as many products as the
    slowest needs. A sample that is not certain at the end (a hard case, an ill-conditioned one) is for
    `by_eigenvalues`.
    """
    scale = np.maximum(_length(gradient), TINY)
    gradient = gradient / scale
    samples, positions = gradient.shape
    most, first_look = min(MOST_PRODUCTS, positions), FIRST_LOOK if precision < ROUGH else 1
    basis, pulled = np.zeros((2, samples, most, positions))
    direction = gradient
    for count in range(1, most + 1):
        basis[:, count - 1] = direction
        pulled[:, count - 1] = fresh = product(direction) / scale
        if count >= first_look or count == most:
            found = _in_subspace(basis[:, :count], pulled[:, :count], gradient, precision)
            if count == most or found.certain.all():
                break
        direction = _next_direction(basis[:, :count], fresh, precision)
        if not direction.any():  # the subspace is all that J can see
            found = _in_subspace(basis[:, :count], pulled[:, :count], gradient, precision)
            break
    return found


class Spanned(NamedTuple):
    """Unit filters (B, n), what they are made of in the products' directions, and which of them are certain (B,)."""

    weights: Floats
    coefficients: Floats
    certain: npt.NDArray[np.bool_]


def _in_subspace(basis: Floats, pulled: Floats, gradient: Floats, precision: float) -> Spanned:
    """The best unit filter in the span of an orthonormal basis (B, k, n), with G's products with it.

    What is left of g - G f - lam f points out of the subspace. G moves it little beside lam, so that to divide it by
    lam and G's share along the last direction brings f on by about as much as another product would.
    """
    small = basis @ pulled.swapaxes(1, 2)
    finite = np.isfinite(small.sum(axis=(1, 2)))
    small = np.where(finite[:, None, None], (small + small.swapaxes(1, 2)) / 2, 0.0)
    spectrum, vectors = np.linalg.eigh(small)
    spectrum = np.maximum(spectrum, 0.0)  # G is positive; below zero there is rounding alone
    numerators = _in_basis(vectors, (basis @ gradient[..., None])[..., 0])
    chosen, multiplier = np.zeros_like(numerators), np.full((len(small), 1), np.inf)
    for sample in np.flatnonzero(finite):
        # Only lam > 0 is certain here: below that, directions that the subspace does not hold may matter.
        root = secular_root(spectrum[sample], numerators[sample], least=0.0)
        if root is not None:
            multiplier[sample] = root.root
            chosen[sample] = numerators[sample] / (spectrum[sample] + root.root)
    coefficients = (vectors @ chosen[..., None])[..., 0]
    weights = (coefficients[:, None] @ basis)[:, 0]
    proper = np.isfinite(multiplier[:, 0])
    lam = np.where(proper, multiplier[:, 0], 1.0)
    residual = gradient - (coefficients[:, None] @ pulled)[:, 0] - lam[:, None] * weights
    weights = weights + residual / (lam + small[:, -1, -1])[:, None]
    error = np.sqrt((residual * residual).sum(axis=1)) / lam * np.minimum(spectrum[:, -1] / lam, 1.0)
    weights = weights / np.maximum(_length(weights), TINY)
    return Spanned(weights, coefficients, proper & (error <= precision))


def _next_direction(basis: Floats, product: Floats, precision: float) -> Floats:
    """What the last product adds to the basis; nothing where it adds no more than rounding."""
    fresh = product
    for _ in range(2):  # once more: the first time rounding leaves a part of the basis in it
        fresh = fresh - ((basis @ fresh[..., None]).swapaxes(1, 2) @ basis)[:, 0]
    length = _length(fresh)
    return np.where(length > precision * _length(product), fresh / np.maximum(length, TINY), 0.0)


def _length(vectors: Floats) -> Floats:
    """Written out: numpy's own norm takes longer than the vectors are worth."""
    length: Floats = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    return length


class Root(NamedTuple):
    """The multiplier, and how many steps it took."""

    root: float
    steps: int


def secular_root(spectrum: Floats, numerators: Floats, *, least: float) -> Root | None:
    """Return lam > -least with ||p / (s + lam)|| = 1, or None where the norm is below 1 all the way down.

    Newton on the reciprocal of the norm, which is nearly straight in lam. Each |p| / (s + lam) alone is at most 1 at
    the root, which bounds it from below; from there the steps never overshoot. Plain numbers: there are few.

    >>> secular_root(np.array([0.0, 3.0]), np.array([2.0, 0.0]), least=0.0).root
    2.0
    """
    pairs = [(s, abs(p)) for s, p in zip(spectrum.tolist(), numerators.tolist(), strict=True) if p]
    root = max([p - s for s, p in pairs], default=-math.inf)
    if root <= -least:  # near the end of the way down: is the norm still above 1 there?
        start = -least + 1e-14 * max(spectrum[-1], least)
        if sum((p / max(s + start, TINY)) ** 2 for s, p in pairs) <= 1:
            return None
        root = start
    for steps in range(1, MOST_STEPS + 1):
        squares = slope = 0.0
        for s, p in pairs:
            shifted = s + root
            square = (p / shifted) ** 2
            squares += square
            slope += square / shifted
        norm = math.sqrt(squares)
        step = squares / slope * (norm - 1)
        root += step
        if abs(step) <= 4e-16 * (abs(root) + spectrum[-1]):
            return Root(root, steps)
    return Root(root, MOST_STEPS)


def by_eigenvalues(
    matrices: Floats, target: Floats | None = None, *, precision: float = 2.0**-52, fill: bool = True
) -> Floats:
    """Return the unit f that minimises ||J f - t||, for (B, m, n) Jacobians known to a relative precision.

    With no target it is the untouched output, t = J 1. Without `fill`, the hard case gives the shortest f that reaches
    the minimum, which is shorter than 1.

    >>> by_eigenvalues(np.array([[[3.0, 0.0], [0.0, 1e-9]]])).round(3) + 0
    array([[1., 0.]])
    """
    rows, positions = matrices.shape[1:]
    if rows < positions:
        # The smaller Gram matrix has the same spectrum: G = J^T J has the basis J^T U / sqrt(S) with J J^T = U S U^T.
        spectrum, vectors = np.linalg.eigh(matrices @ matrices.swapaxes(1, 2))
        basis = matrices.swapaxes(1, 2) @ vectors / np.sqrt(np.maximum(spectrum, 1e-300))[:, None, :]
    else:
        spectrum, basis = np.linalg.eigh(matrices.swapaxes(1, 2) @ matrices)
    largest = np.maximum(spectrum[:, -1:], 1e-300)
    # Below this, an eigenvalue is rounding: of the Jacobian, or of the Gram matrix made from it.
    seen = spectrum > max((8 * precision) ** 2, positions * np.finfo(np.float64).eps) * largest
    if target is None:
        numerators = spectrum * basis.sum(axis=1) / largest
    else:
        pulled = (matrices.swapaxes(1, 2) @ target[..., None])[..., 0]
        numerators = _in_basis(basis, pulled) / largest
    spectrum = spectrum / largest
    found = []
    for row, sees in enumerate(seen):
        complete = rows >= positions and bool(sees.all())
        own = spectrum[row][sees], numerators[row][sees], basis[row][:, sees]
        found.append(_one(*own, complete=complete, fill=fill))
    return np.stack(found)


def _one(spectrum: Floats, numerators: Floats, basis: Floats, *, complete: bool, fill: bool) -> Floats:
    """One sample, with the eigenvalues that J sees; `complete` tells whether these are all directions there are."""
    if not spectrum.size:
        return np.full(len(basis), len(basis) ** -0.5)
    least = float(spectrum[0]) if complete else 0.0
    # Nothing pulls along these directions of the least eigenvalue, so they are free to be filled up.
    rest = (spectrum - least > 1e-12) | (np.abs(numerators) > 1e-12 * np.abs(numerators).max())
    spectrum, numerators, own = spectrum[rest], numerators[rest], basis[:, rest]
    found = secular_root(spectrum, numerators, least=least) if spectrum.size else None
    if found is not None:
        weights: Floats = own @ (numerators / (spectrum + found.root))
        return weights / math.sqrt(weights @ weights)
    visible: Floats = own @ (numerators / np.maximum(spectrum - least, TINY))
    if not fill:
        return visible
    filling = _filling(basis[:, ~rest] if complete else basis, complete=complete)
    return visible + filling * math.sqrt(max(0.0, 1 - float(visible @ visible)))


def _filling(basis: Floats, *, complete: bool) -> Floats:
    """A unit direction of the least eigenvalue, as near to 1 as can be: inside this basis, or outside of it."""
    inside = basis @ basis.sum(axis=0)  # the part of 1 in the basis
    wanted = inside if complete else 1 - inside
    if np.linalg.norm(wanted) < 1e-9:  # nothing of 1 is there: any direction will do
        corner = np.argmax((basis * basis).sum(axis=1)) if complete else np.argmin((basis * basis).sum(axis=1))
        wanted = basis @ basis[corner]
        if not complete:
            wanted = -wanted
            wanted[corner] += 1
    return wanted / max(float(np.linalg.norm(wanted)), TINY)


def _in_basis(basis: Floats, vectors: Floats) -> Floats:
    coefficients: Floats = (basis.swapaxes(1, 2) @ vectors[..., None])[..., 0]
    return coefficients

"""`PooledLinear`: a mean over the positions and a linear map, as plain arrays.

What most networks end in, and all that is needed to explain one without running it again: with A the layer's map as
(B, C, n), the output is W mean(A) + b, and FT(f) = W (A f) / n + b. The arrays may be torch's or numpy's: a plan,
features on disk and an exported graph hold the same two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class PooledLinear:
    """`weight` W is (m, C), `bias` b is (m,).

    >>> import numpy as np
    >>> pooled = PooledLinear(np.array([[1.0, 2.0]]), np.array([0.5]))
    >>> pooled.of_mean(np.array([[3.0, 1.0]])).tolist(), pooled.pull(np.array([[2.0]])).tolist()
    ([[5.5]], [[2.0, 4.0]])
    """

    weight: Any
    bias: Any

    def push(self, means: Any) -> Any:
        """W v, for (..., C) vectors."""
        return means @ self.weight.T

    def of_mean(self, means: Any) -> Any:
        """W v + b."""
        return self.push(means) + self.bias

    def pull(self, directions: Any) -> Any:
        """W^T d, for (..., m) directions."""
        return directions @ self.weight

"""Array types, and the glossary of axes: images, draws, labels (c), true labels (d), sizes (e), terms, layers."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

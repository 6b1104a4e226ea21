"""Array types, and the one glossary of shapes: images, draws, labels (c), true labels (d), sizes (e), terms, layers."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Method = Literal["joint", "paper", "independent", "jia", "cohen"]
ThresholdMethod = Literal["joint", "independent"]

"""The curve of eye tracking that the simulations use, for tests."""

import numpy as np

CURVE = np.array([.68, .61, .48, .34, .28, .20, .11, .10, .08, .06])

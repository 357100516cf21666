"""Where the integrand of a row lives, as fitted by tests/tables/make_calm_table.py.

Each line of a table holds the coefficients of 1, s, s², b, b s and b², with b and s of ``calm.py``;
each table has six lines: left end, width and bend of the grid of a row that is behind, and the same
for one that is ahead.
"""

import functools

SOFTNESS = 1.4
LEVEL = 0.38  # a row is ahead if b > LEVEL s: P is then 0.41 or more, elsewhere 0.67 or less
MOST_RIVALS = 99

# For nearest margins from -8 to 19.
NEAR = (
    (4.1551, -2.1033, 0.2949, -0.20846, 0.044092, 0.0052437),
    (8.1487, -1.8802, 0.26568, 0.74273, -0.027958, 0.063054),
    (1.7245, 0.47557, -0.097579, 0.24014, 0.022641, 0.0047953),
    (2.5692, -0.53314, -0.01208, -0.29098, 0.053866, -0.014781),
    (6.5017, -0.53279, -0.012041, -0.026854, 0.053829, -0.0023257),
    (1.4169, 0.50346, -0.0060448, -0.41266, -0.032656, 0.023789),
)
# For nearest margins from -19 to 19, if log P > -92.
FAR = (
    (5.9917, -2.9929, 0.4716, 0.016582, 0.057405, 0.020896),
    (9.9262, -2.684, 0.46609, 0.47249, 0.0077125, 0.019788),
    (1.2534, 0.56165, -0.034922, 0.097263, 0.075396, 0.0047438),
    (2.572, -0.54501, -0.0077881, -0.29144, 0.053295, -0.014774),
    (6.5074, -0.54443, -0.0077421, -0.028136, 0.053242, -0.0022689),
    (1.4042, 0.53057, -0.013596, -0.36265, -0.035552, 0.018473),
)

# Rivals up to which so many nodes leave 1e-6 of log P, 2e-5 of the gradient; near and far.
_NODES = ((9, 15, 22), (15, 16, 24), (31, 18, 26), (63, 24, 32), (MOST_RIVALS, 28, 40))


@functools.cache
def count_nodes(rivals: int, far: bool) -> int:
    """How many nodes a row of at most ``MOST_RIVALS`` rivals needs."""
    return next(count[far] for most, *count in _NODES if rivals <= most)

"""philox.py - Philox4x32-10 (Salmon et al. 2011) and the draws that are made of it, written from the paper and from
the words of sampling/rng.h. What the twins of this folder share; the standard library alone.
"""

import math
from fractions import Fraction

DRAFT, ACCEPT, RESIDUAL, BONUS, TOKEN = range(5)
UNIT = Fraction(1, 2**53)


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's kat_vectors
assert philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
    0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


class Philox:
    """Uniforms of one seed and sequence; root as struct rng has it."""

    def __init__(self, seed, sequence, root):
        self.seed, self.sequence, self.root = seed, sequence, root

    def bits(self, purpose, position, node, index=0):
        counter = [purpose << 29 | node << 19 | index // 2, position, self.sequence & 0xFFFFFFFF, self.sequence >> 32]
        c = philox(counter, [self.seed & 0xFFFFFFFF, self.seed >> 32])
        half = 2 * (index % 2)
        return (c[half + 1] << 32 | c[half]) >> 11

    def uniform(self, purpose, node):
        return self.bits(purpose, self.root, node) * UNIT

    def race(self, weight, position):
        """The i with the least -log(1 - u_i) / weight_i; and how much less the winner's is than the next, of itself."""
        times = []
        for i, w in enumerate(weight):
            if w > 0:
                u = (self.bits(TOKEN, position, 0, i) + Fraction(1, 2)) * UNIT
                times.append((-math.log1p(-float(u)) / float(w), i))
        times.sort()
        gap = times[1][0] / times[0][0] - 1 if len(times) > 1 else 1
        return times[0][1], gap


class Given:
    """Uniforms as a case names them: {(purpose, node): u}."""

    def __init__(self, u):
        self.u = u

    def uniform(self, purpose, node):
        return self.u[purpose, node]


def accept(u, num, den):
    if num <= 0:
        return False
    return num >= den or u * den < num


def invert(u, weight):
    """The first index at which the sum of the weights is above u times their whole; and how near that was."""
    whole, below = sum(weight), 0
    near = min(abs(sum(weight[:i]) - u * whole) for i in range(1, len(weight)))
    for i, w in enumerate(weight):
        below += w
        if w > 0 and below > u * whole:
            return i, near
    raise AssertionError("no mass")

from __future__ import annotations

import numba
import numpy as np

from copilot4d import compiled as compiled_module
from copilot4d.simulator import random_numbers
from copilot4d.simulator.random_numbers import key, mix, uniform, unit


def test_numbers_depend_on_every_part_of_their_key_and_on_nothing_else():
    base = key(7, random_numbers.ROUTE)
    assert key(7, random_numbers.ROUTE) == base
    assert len({key(7, 4), key(4, 7), key(7), key(7, 4, 0), key(8, 4)}) == 5
    several = uniform(base, np.arange(5), 3)
    one_by_one = [float(uniform(base, agent, 3)) for agent in range(5)]
    np.testing.assert_array_equal(several, one_by_one)
    assert not np.array_equal(several, uniform(base, np.arange(5), 4))
    assert not np.array_equal(several, uniform(key(8, random_numbers.ROUTE), np.arange(5), 3))
    first, second = random_numbers.generator(3, 1).random(4), random_numbers.generator(3, 1).random(4)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, random_numbers.generator(3, 2).random(4))


def test_numbers_are_uniform_and_neighbouring_counters_are_independent():
    u = uniform(key(1), np.arange(200_000))
    assert u.min() >= 0.0
    assert u.max() < 1.0
    counts, _ = np.histogram(u, 20, (0, 1))
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.01


def test_compiled_and_plain_arithmetic_give_the_same_words():
    for value in (0, 1, 2**63, 2**64 - 1, 123456789):
        assert int(mix(np.uint64(value))) == random_numbers._mix_int(value)
        assert int(random_numbers._mix_array(np.array([value], dtype=np.uint64))[0]) == random_numbers._mix_int(value)
    assert float(unit(np.uint64(2**64 - 1))) == 1.0 - 2.0**-53
    assert float(uniform(5, 9)) == float(unit(np.uint64(random_numbers._mix_int(5 ^ 9))))


def test_where_nothing_may_be_kept_on_disk_functions_are_compiled_all_the_same(monkeypatch):
    real, asked = numba.njit, []

    def njit(**options):
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(compiled_module.numba, "njit", njit)
    double = compiled_module.compiled(lambda x: 2 * x)
    assert double(21) == 42
    assert [bool(options.get("cache")) for options in asked] == [True, False]

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.evaluation.pooled_median import PooledMedian


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_agrees_with_the_median_of_all_values(count):
    values = np.random.default_rng(count).lognormal(-2, 2, count)
    pooled = PooledMedian()
    for part in np.array_split(values, 3):
        pooled.add(part)
    assert pooled.count == count
    assert pooled.value() == pytest.approx(np.median(values), rel=1.1e-4)


def test_zeros_and_nothing():
    pooled = PooledMedian()
    assert np.isnan(pooled.value())
    pooled.add(np.array([0.0, 0.0, 5.0]))
    assert pooled.value() == 0.0
    pooled.add(np.array([4.0, 1e9]))
    assert pooled.value() == pytest.approx(4.0, rel=1e-4)


def test_it_is_the_pooled_median_not_the_mean_of_medians():
    pooled = PooledMedian()
    pooled.add(np.array([1.0]))
    pooled.add(np.array([9.0, 10.0, 11.0, 12.0]))
    assert pooled.value() == pytest.approx(10.0, rel=1e-4)

"""The appendix, on vocabularies small enough to write every state down."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import expm

from copilot4d.world_model import diffusion
from copilot4d.world_model.schedule import mask_rates, noise_rates

V, K = 3, 4
ALPHAS, BETAS = mask_rates(K), noise_rates(K, 0.2)


def random_x0(rng, steps=K, vocabulary=V):
    """A model's p(x_0 | x_k): any rows that sum to one."""
    return rng.dirichlet(np.ones(vocabulary), size=(steps, vocabulary + 1))


def test_the_matrices_are_the_exponentials_of_the_appendix():
    mask = np.eye(V + 1)[V]
    ones, rest = np.ones(V + 1), np.ones(V + 1) - mask
    rate_absorbing = np.outer(ones, mask) - np.eye(V + 1)
    rate_uniform = np.outer(rest, rest) / V - (np.eye(V + 1) - np.outer(mask, mask))
    alpha, beta = 0.3, 0.17
    np.testing.assert_allclose(diffusion.absorbing(alpha, V), expm(-np.log(1 - alpha) * rate_absorbing), atol=1e-12)
    np.testing.assert_allclose(diffusion.uniform(beta, V), expm(-np.log(1 - beta) * rate_uniform), atol=1e-12)
    np.testing.assert_allclose(rate_absorbing @ rate_uniform, rate_uniform @ rate_absorbing, atol=1e-12)


def test_absorbing_and_uniform_steps_commute():
    for alpha, beta in itertools.product((0.0, 0.2, 0.7, 1.0), (0.0, 0.1, 1.0)):
        a, u = diffusion.absorbing(alpha, V), diffusion.uniform(beta, V)
        np.testing.assert_allclose(a @ u, u @ a, atol=1e-15)
        np.testing.assert_allclose((a @ u).sum(axis=1), 1)


def test_the_product_has_second_order_terms_that_the_printed_matrix_lacks():
    alpha, beta = 0.3, 0.2
    q = diffusion.transition(alpha, beta, V)
    omega, nu = (1 - alpha) * (1 - beta), (1 - alpha) * beta / V
    assert q[0, 0] == pytest.approx(omega + nu)
    assert q[0, 1] == pytest.approx(nu)
    assert q[0, V] == pytest.approx(alpha)
    np.testing.assert_allclose(q[V], np.eye(V + 1)[V])
    printed = (1 - alpha - beta) + beta / V
    assert abs(q[0, 0] - printed) > 0.01


def test_cumulative_products_have_the_closed_form():
    steps, products = diffusion.transitions(ALPHAS, BETAS, V), diffusion.cumulative(ALPHAS, BETAS, V)
    product = np.eye(V + 1)
    np.testing.assert_allclose(products[0], product)
    for k in range(K):
        product = product @ steps[k]
        np.testing.assert_allclose(products[k + 1], product, atol=1e-12)
    np.testing.assert_allclose(products[K][:, V], 1, atol=1e-12)  # all MASK at the end


def test_the_posterior_is_bayes_on_the_enumerated_chain():
    steps, products = diffusion.transitions(ALPHAS, BETAS, V), diffusion.cumulative(ALPHAS, BETAS, V)
    for k in range(1, K + 1):
        law = diffusion.posterior(steps[k - 1], products[k - 1], products[k])
        for x0, xk in itertools.product(range(V), range(V + 1)):
            joint = np.array([products[k - 1][x0, i] * steps[k - 1][i, xk] for i in range(V + 1)])
            if joint.sum() == 0:
                assert (law[x0, xk] == 0).all()
            else:
                np.testing.assert_allclose(law[x0, xk], joint / joint.sum(), atol=1e-12)
        assert np.allclose(law[:V, :V, V], 0)  # from a token, the step before was never MASK


def test_the_bounds_hold_in_their_order_for_any_model():
    rng = np.random.default_rng(0)
    for _ in range(50):
        data, model = rng.dirichlet(np.ones(V)), random_x0(rng)
        exact = diffusion.log_likelihood(data, ALPHAS, BETAS, model)
        elbo = diffusion.evidence_lower_bound(data, ALPHAS, BETAS, model)
        bound = diffusion.mask_modelling_bound(data, ALPHAS, BETAS, model)
        assert exact >= elbo - 1e-9
        assert elbo >= bound - 1e-9
        assert elbo - bound > 1e-6  # they are different numbers for a wrong model


def test_the_bounds_are_tight_for_the_true_posterior():
    data = np.array([0.5, 0.3, 0.2])
    model = np.stack([diffusion.true_x0(data, ALPHAS, BETAS, k) for k in range(1, K + 1)])
    entropy = float(data @ np.log(data))
    for value in (diffusion.log_likelihood, diffusion.evidence_lower_bound, diffusion.mask_modelling_bound):
        assert value(data, ALPHAS, BETAS, model) == pytest.approx(entropy, abs=1e-9)


def test_the_likelihood_agrees_with_a_sum_over_all_chains():
    rng = np.random.default_rng(1)
    vocabulary, steps = 2, 2
    alphas, betas = mask_rates(steps), noise_rates(steps, 0.5)
    data, model = rng.dirichlet(np.ones(vocabulary)), random_x0(rng, steps, vocabulary)
    q, qbar = diffusion.transitions(alphas, betas, vocabulary), diffusion.cumulative(alphas, betas, vocabulary)
    back = [diffusion.reverse(q[k], qbar[k], qbar[k + 1], model[k]) for k in range(steps)]
    p = np.zeros(vocabulary)
    for x0, x1 in itertools.product(range(vocabulary), range(vocabulary + 1)):
        p[x0] += back[1][vocabulary, x1] * back[0][x1, x0]  # x_2 is MASK with certainty
    assert diffusion.log_likelihood(data, alphas, betas, model) == pytest.approx(float(data @ np.log(p)))

"""Absorbing-uniform discrete diffusion as matrices (the paper's appendix), for vocabularies small enough to write out.

States 0 ... M-1 are the vocabulary, state M is MASK. [Q]_{ij} = q(x_k = j | x_{k-1} = i): rows sum to 1. The sampler
works with closed forms of the same laws (`reverse.reverse_probabilities`), which never build a matrix.

The appendix prints omega_k = 1 - alpha_k - beta_k and nu_k = beta_k / M for Q_k = Q^a_k Q^u_k. That is the product to
first order only; the true product has omega_k = (1 - alpha_k)(1 - beta_k) and nu_k = (1 - alpha_k) beta_k / M.
"""

from __future__ import annotations

import numpy as np

from copilot4d.world_model.schedule import FloatArray


def absorbing(alpha: float, vocabulary: int) -> FloatArray:
    """(M+1, M+1) Q^a = (1 - alpha) I + alpha 1 e_m^T: a token turns into MASK with chance alpha.

    >>> absorbing(0.25, 1)
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """
    matrix = (1 - alpha) * np.eye(vocabulary + 1)
    matrix[:, vocabulary] += alpha
    return matrix


def uniform(beta: float, vocabulary: int) -> FloatArray:
    """(M+1, M+1) Q^u: with chance beta a token is drawn anew from the vocabulary (itself too); MASK stays MASK.

    >>> uniform(0.5, 2)
    array([[0.75, 0.25, 0.  ],
           [0.25, 0.75, 0.  ],
           [0.  , 0.  , 1.  ]])
    """
    matrix = np.zeros((vocabulary + 1, vocabulary + 1))
    matrix[:vocabulary, :vocabulary] = beta / vocabulary
    matrix[np.arange(vocabulary), np.arange(vocabulary)] += 1 - beta
    matrix[vocabulary, vocabulary] = 1.0
    return matrix


def transition(alpha: float, beta: float, vocabulary: int) -> FloatArray:
    """(M+1, M+1) Q_k = Q^a_k Q^u_k; the two commute."""
    return absorbing(alpha, vocabulary) @ uniform(beta, vocabulary)


def transitions(alphas: FloatArray, betas: FloatArray, vocabulary: int) -> FloatArray:
    """(K,), (K,) -> (K, M+1, M+1): Q_1 ... Q_K."""
    return np.stack([transition(a, b, vocabulary) for a, b in zip(alphas, betas, strict=True)])


def cumulative(alphas: FloatArray, betas: FloatArray, vocabulary: int) -> FloatArray:
    """(K,), (K,) -> (K+1, M+1, M+1): Q-bar_0 = I, Q-bar_k = Q_1 ... Q_k = Q-bar^a_k Q-bar^u_k in closed form."""
    masked = 1 - np.cumprod(np.concatenate([[1.0], 1 - alphas]))
    noised = 1 - np.cumprod(np.concatenate([[1.0], 1 - betas]))
    return np.stack([transition(a, b, vocabulary) for a, b in zip(masked, noised, strict=True)])


def posterior(q_k: FloatArray, qbar_before: FloatArray, qbar_k: FloatArray) -> FloatArray:
    """[l, j, i] = q(x_{k-1} = i | x_k = j, x_0 = l) = [Q-bar_{k-1}]_{li} [Q_k]_{ij} / [Q-bar_k]_{lj}.

    Where x_k = j cannot come from x_0 = l the law is not defined; zeros stand there.
    """
    joint = qbar_before[:, None, :] * q_k.T[None, :, :]  # (l, j, i)
    evidence = qbar_k[:, :, None]
    return np.divide(joint, evidence, out=np.zeros_like(joint), where=evidence > 0)


def reverse(q_k: FloatArray, qbar_before: FloatArray, qbar_k: FloatArray, x0_given_xk: FloatArray) -> FloatArray:
    """[j, i] = p(x_{k-1} = i | x_k = j) = sum_l q(i | j, l) p(x_0 = l | x_k = j): D3PM's parametrisation.

    x0_given_xk: (M+1, M), one row per x_k, over the vocabulary.
    """
    vocabulary = x0_given_xk.shape[1]
    law: FloatArray = np.einsum("lji,jl->ji", posterior(q_k, qbar_before, qbar_k)[:vocabulary], x0_given_xk)
    return law


def log_likelihood(data: FloatArray, alphas: FloatArray, betas: FloatArray, x0_given_xk: FloatArray) -> float:
    """E_q(x_0) log p(x_0), exactly: the model's chain from p(x_K) = q(x_K) down to x_0, all states summed.

    data: (M,) q(x_0). x0_given_xk: (K, M+1, M) the model's p(x_0 | x_k) for k = 1 ... K.
    """
    vocabulary = len(data)
    q, qbar = transitions(alphas, betas, vocabulary), cumulative(alphas, betas, vocabulary)
    law = np.append(data, 0.0) @ qbar[-1]  # of x_K
    for k in range(len(alphas), 0, -1):
        law = law @ reverse(q[k - 1], qbar[k - 1], qbar[k], x0_given_xk[k - 1])
    return float(data @ np.log(law[:vocabulary]))


def evidence_lower_bound(data: FloatArray, alphas: FloatArray, betas: FloatArray, x0_given_xk: FloatArray) -> float:
    """E_q(x_0) of the ELBO: E log p(x_K) + sum_k E log p(x_{k-1} | x_k) - E log q(x_k | x_{k-1}), p(x_K) = q(x_K)."""
    vocabulary = len(data)
    q, qbar = transitions(alphas, betas, vocabulary), cumulative(alphas, betas, vocabulary)
    start = np.append(data, 0.0)
    total = _expected_log(start @ qbar[-1], start @ qbar[-1])
    for k in range(1, len(alphas) + 1):
        joint = (start @ qbar[k - 1])[:, None] * q[k - 1]  # (x_{k-1}, x_k)
        step = reverse(q[k - 1], qbar[k - 1], qbar[k], x0_given_xk[k - 1])
        total += _expected_log(joint, step.T) - _expected_log(joint, q[k - 1])
    return total


def mask_modelling_bound(data: FloatArray, alphas: FloatArray, betas: FloatArray, x0_given_xk: FloatArray) -> float:
    """sum_k E log p(x_0 | x_k) + C with C = E[log q(x_0) - sum_k log q(x_0 | x_k)]: what cross entropy maximises."""
    total = _expected_log(data, data)
    for k in range(1, len(alphas) + 1):
        joint = data[:, None] * cumulative(alphas, betas, len(data))[k][: len(data)]  # (x_0, x_k)
        total += _expected_log(joint, x0_given_xk[k - 1].T) - _expected_log(joint, true_x0(data, alphas, betas, k).T)
    return total


def true_x0(data: FloatArray, alphas: FloatArray, betas: FloatArray, k: int) -> FloatArray:
    """(M+1, M) q(x_0 | x_k) by Bayes; rows of states that never occur are uniform."""
    joint = (data[:, None] * cumulative(alphas, betas, len(data))[k][: len(data)]).T
    evidence = joint.sum(axis=1, keepdims=True)
    law: FloatArray = np.divide(joint, evidence, out=np.full_like(joint, 1 / len(data)), where=evidence > 0)
    return law


def _expected_log(weights: FloatArray, probabilities: FloatArray) -> float:
    """sum w log p, with 0 log anything = 0."""
    counts = weights > 0
    return float(np.sum(weights[counts] * np.log(probabilities[counts])))

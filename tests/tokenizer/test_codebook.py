from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.tokenizer.codebook import Codebook, CodebookConfig
from copilot4d.tokenizer.kmeans import kmeans, nearest_rows, seeds

CODES, DIM = 32, 4


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def codebook(**changes) -> Codebook:
    torch.manual_seed(0)
    return Codebook(CodebookConfig(**{"codes": CODES, "dim": DIM, "bank_factor": 10} | changes))


def blobs(rows: int, seed: int = 0) -> torch.Tensor:
    """Rows around 32 corners of a lattice, far apart against their spread."""
    rng = np.random.default_rng(seed)
    corner = np.stack(np.unravel_index(rng.permutation(np.arange(rows) % CODES), (2, 4, 2, 2)), axis=-1)
    return torch.from_numpy((10.0 * corner + rng.normal(scale=0.1, size=(rows, DIM))).astype(np.float32))


def counts_of(book: Codebook, rows: torch.Tensor) -> torch.Tensor:
    return torch.bincount(book.nearest(rows), minlength=CODES)


def test_nearest_is_the_nearest_by_exhaustive_search():
    book = codebook()
    features = torch.randn(2, 3, 5, DIM, generator=generator())
    expected = torch.cdist(features.flatten(0, 2).double(), book.weight.double()).argmin(dim=-1).view(2, 3, 5)
    assert torch.equal(book.nearest(features), expected)


def test_the_search_is_in_fp32_under_autocast():
    """Codes that differ by less than bf16 can tell."""
    rows = torch.full((1, 64), 1.0)
    centres = torch.stack([torch.full((64,), 1.001), torch.full((64,), 1.0001)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nearest_rows(rows, centres).tolist() == [1]


def test_gradients_go_straight_through_and_each_loss_moves_one_side():
    book = codebook()
    features = torch.randn(1, 2, 2, DIM, generator=generator(1), requires_grad=True)
    out = book(features)
    torch.testing.assert_close(out.values, book.weight[out.tokens])
    upstream = torch.randn(out.values.shape, generator=generator(2))
    (to_features,) = torch.autograd.grad((out.values * upstream).sum(), features, retain_graph=True)
    torch.testing.assert_close(to_features, upstream)
    e = book.weight[out.tokens].detach()
    z = features.detach()
    assert out.codebook_loss.item() == pytest.approx(float((e - z).square().mean()))
    (commit,) = torch.autograd.grad(out.commitment_loss, features, retain_graph=True)
    torch.testing.assert_close(commit, 2 * (z - e) / z.numel())
    (moved,) = torch.autograd.grad(out.codebook_loss, book.weight, retain_graph=True)
    assert (moved.abs().sum(dim=-1) > 0).sum() == out.tokens.unique().numel()
    assert torch.autograd.grad(out.codebook_loss, features, allow_unused=True) == (None,)


def test_kmeans_finds_separate_clusters_and_is_deterministic():
    rows = blobs(640)
    centres = kmeans(rows, CODES, generator(), iterations=25)
    assert torch.equal(centres, kmeans(rows, CODES, generator(), iterations=25))
    distance = (rows - centres[nearest_rows(rows, centres)]).norm(dim=-1)
    assert distance.median() < 0.5
    assert len(nearest_rows(rows, centres).unique()) >= 30
    with pytest.raises(UsageError, match="at least as many rows"):
        kmeans(rows[:5], CODES, generator())


def test_a_centre_without_rows_is_moved_to_the_worst_served():
    rows = torch.tensor([[0.0], [0.0], [0.0], [0.0], [10.0]])
    centres = kmeans(rows, 2, torch.Generator().manual_seed(1), iterations=5)
    assert sorted(centres.flatten().tolist()) == [0.0, 10.0]


def test_kmeans_revives_a_collapsed_codebook_and_waits_200_iterations_before_the_next():
    book = codebook()
    with torch.no_grad():
        book.weight.fill_(1000.0)
        book.weight[0] = 0.0  # nearest to everything: collapsed
    made_at = []
    for step in range(1, 700):
        rows = blobs(64, seed=step)
        counts = counts_of(book, rows)
        if made_at:
            counts = torch.zeros(CODES, dtype=torch.int64).index_fill(0, torch.tensor([0]), 64)  # collapsed again
        report = book.update(rows, counts, generator(step))
        if report.reinitialised:
            made_at.append(step)
            if len(made_at) == 1:
                assert len(counts_of(book, blobs(640)).nonzero()) >= 30  # it lives
    # dead codes are unused for 256 iterations; those that stay so let the next one come when 200 have passed
    assert made_at == [256, 456, 656]


def test_few_dead_codes_are_left_alone():
    book = codebook(dead_fraction=0.03)
    used = torch.ones(CODES, dtype=torch.int64)
    used[0] = 0  # 1 of 32 is 3.1 %
    reports = [book.update(blobs(64), used, generator()) for _ in range(300)]
    assert [r.reinitialised for r in reports].index(True) == 255
    book = codebook(dead_fraction=0.04)
    assert not any(book.update(blobs(64), used, generator()).reinitialised for _ in range(300))


def test_the_bank_keeps_the_most_recent_rows():
    book = codebook(bank_factor=1)
    for step in range(5):
        book.update(torch.full((10, DIM), float(step)), torch.ones(CODES, dtype=torch.int64), generator())
    assert sorted(book.bank[:, 0].tolist()) == [1.0] * 2 + [2.0] * 10 + [3.0] * 10 + [4.0] * 10
    assert book.full
    book.update(torch.arange(100.0)[:, None].expand(100, DIM), torch.ones(CODES, dtype=torch.int64), generator())
    assert sorted(book.bank[:, 0].tolist()) == list(range(68, 100))


def test_starting_from_data_happens_once_when_the_bank_is_full():
    book = codebook(start_from_data=True)
    used = torch.ones(CODES, dtype=torch.int64)
    reports = [book.update(blobs(64, seed=i), used, generator(i)).reinitialised for i in range(30)]
    assert [i for i, made in enumerate(reports) if made] == [4]


def test_warming_up_passes_features_on_and_ends_with_kmeans():
    book = codebook(warm_up=5)
    features = torch.randn(1, 2, 2, DIM, generator=generator(1), requires_grad=True)
    for i in range(5):
        assert int(book.made) == 0
        out = book(features)
        assert torch.equal(out.values, features)
        assert (out.codebook_loss.item(), out.commitment_loss.item()) == (0.0, 0.0)
        rows = blobs(64, seed=i)
        report = book.update(rows, counts_of(book, rows), generator())
    assert report.reinitialised
    assert int(book.made) == 1
    out = book(features)
    torch.testing.assert_close(out.values, book.weight[out.tokens])
    assert not torch.equal(out.values, features)
    assert len(book.nearest(blobs(640)).unique()) >= 28


def test_an_evaluated_codebook_quantises_even_while_it_warms_up():
    book = codebook(warm_up=5).eval()
    out = book(torch.randn(1, 2, 2, DIM, generator=generator(1)))
    torch.testing.assert_close(out.values, book.weight[out.tokens])


def test_perplexity_counts_the_codes_in_equal_use():
    counts = torch.zeros(CODES, dtype=torch.int64)
    counts[:8] = 5
    report = codebook().update(blobs(64), counts, generator())
    assert report.perplexity == pytest.approx(8)
    assert report.used == pytest.approx(0.25)


def test_seeds_are_distinct_rows_far_from_each_other():
    rows = torch.cat([torch.zeros(1000, 2), torch.tensor([[10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])])
    chosen = seeds(rows + 0.001 * torch.randn(rows.shape, generator=generator()), 4, generator())
    assert len(set(chosen.tolist())) == 4
    assert set(chosen.tolist()) >= {1000, 1001, 1002}  # drawn evenly, all four would lie in the crowd
    assert sorted(seeds(torch.ones(5, 2), 5, generator()).tolist()) == [0, 1, 2, 3, 4]  # equal rows are rows too


def test_the_codes_of_a_trained_tokenizer_are_made_anew_once_if_asked():
    book = codebook(bank_factor=2)
    book.begin_trained()
    used = torch.ones(CODES, dtype=torch.int64)
    made = [book.update(blobs(CODES, seed), used, generator(), remake=True).reinitialised for seed in range(6)]
    assert made == [False, True, False, False, False, False]
    book.begin_trained()
    assert not any(book.update(blobs(CODES, seed), used, generator()).reinitialised for seed in range(6))

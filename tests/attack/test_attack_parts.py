"""The parts of an attack: margins against counting, the ball in exact numbers, draws that no one else uses."""

import numpy as np
import pytest
import torch
from multiguard.smooth.asked import Passing, TopK
from tests.attack.templates import SIGMA, digits_classifier, held_out_images

from multiguard.attack import AttackPlan, Victim, attack_images
from multiguard.attack.aim import Aim
from multiguard.attack.ball import norms, within
from multiguard.attack.copies import NoisyCopies
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Setting, ThresholdSetting, judged_size
from multiguard.evaluate.judged import goals
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, Smoother
from multiguard.smooth.noise import noise_key


def random_counts(rng, labels=7, draws=30):
    return rng.integers(0, draws + 1, labels), tuple(sorted(rng.choice(labels, rng.integers(1, labels), replace=False)))


def plainly_counted(shares, labels, setting, goal):
    if isinstance(setting, Setting):
        order = sorted(range(7), key=lambda label: (-shares[label], label not in labels))
        return len(set(order[: setting.k]) & set(labels))
    if goal == "in":
        return sum(shares[label] >= setting.threshold for label in labels)
    return sum(shares[label] < setting.threshold for label in set(range(7)) - set(labels))


@pytest.mark.parametrize("setting", [Setting(3, 2), Setting(1, 1), Setting(7, 2), ThresholdSetting(0.41)])
def test_margins_and_judging_count_what_sorting_counts(setting):
    """Ties go to L, and a share of t is in: the order of labels by share, ours first among equals, says it plainly."""
    asked = TopK(setting.k, setting.k_prime) if isinstance(setting, Setting) else Passing(setting.threshold)
    rng = np.random.default_rng(0)
    for _ in range(200):
        counts, labels = random_counts(rng)
        inside = torch.zeros(1, 7, dtype=torch.bool)
        inside[0, list(labels)] = True
        for goal in goals(setting):
            shares = torch.from_numpy(counts / 30)[None]
            margins = Aim(asked, goal).margins(shares, inside)
            size = plainly_counted(counts / 30, labels, setting, goal)
            assert judged_size(counts, 30, labels, setting, goal, beta=0.01)[0] == size
            assert int((margins >= 0).sum()) == size
            assert bool((margins[:, 1:] <= margins[:, :-1]).all()), "margins never rise"
            value = float(Aim(asked, goal).value(shares, inside))
            assert size - 1 <= value <= size if size else value < 0


def test_a_share_of_t_is_in_for_both_goals():
    """The smoothed classifier returns a label from t on: of L it stays, another one has come in."""
    shares, inside = torch.tensor([[0.25, 0.25, 0.2]], dtype=torch.float64), torch.tensor([[True, False, False]])
    for goal, size in (("in", 1), ("out", 1)):
        setting = ThresholdSetting(0.25)
        assert int((Aim(Passing(0.25), goal).margins(shares, inside) >= 0).sum()) == size, goal
        assert judged_size([5, 5, 4], 20, (0,), setting, goal, beta=0.01)[0] == size


def test_what_is_sure_is_wrong_as_rarely_as_promised():
    """Probabilities at a tie, where every claim that a label left is false: seeded, judged by the exact binomial."""
    from scipy.stats import binomtest

    rng, beta, runs = np.random.default_rng(1), 0.2, 2000
    probabilities = np.array([0.5, 0.5, 0.5, 0.1])
    wrong = 0
    for _ in range(runs):
        counts = rng.binomial(60, probabilities)
        # With the first label tied with two others at k = 2 it may be in: at most 0 would be a false claim of L = {0}.
        wrong += judged_size(counts, 60, (0,), Setting(2, 2), "in", beta=beta)[1] < 1
    assert binomtest(wrong, runs, beta, alternative="greater").pvalue > 0.01


def test_enough_draws_make_a_fall_sure():
    counts = np.array([100, 900, 800, 200])
    assert judged_size(counts, 1000, (0, 1), Setting(2, 2), "in", beta=0.001) == (1, 1)
    assert judged_size(counts // 100, 10, (0, 1), Setting(2, 2), "in", beta=0.001) == (1, 2), "ten draws tell little"
    assert judged_size(counts, 1000, (0, 1), ThresholdSetting(0.5), "in", beta=0.001) == (1, 1)
    assert judged_size(counts, 1000, (0, 1), ThresholdSetting(0.5), "out", beta=0.001) == (1, 1)


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("onto", [False, True])
def test_no_change_is_longer_than_allowed_in_the_numbers_as_they_are(box, onto):
    generator = torch.Generator().manual_seed(0)
    clean = torch.randint(0, 256, (40, 3, 8, 8), generator=generator).float() / 255
    radius = torch.logspace(-9, 1, 40, dtype=torch.float64)
    found = within(clean, clean + torch.randn(clean.shape, generator=generator), radius, box=box, onto=onto)
    change = (found.double().numpy() - clean.double().numpy()).reshape(40, -1)
    assert np.all(np.sqrt(np.sum(change**2, axis=1)) <= radius.numpy())
    assert not box or (found.min() >= 0 and found.max() <= 1)
    if onto and not box:
        assert torch.all(norms(clean, found)[16:] > 0.999 * radius[16:])


def test_every_use_of_draws_has_noise_of_its_own():
    keys = {noise_key(0, "image", stream) for stream in ("certify", "pilot", "attack", "judge")}
    assert len(keys) == 4


@pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
def test_copies_carry_the_noise_of_their_draws_whatever_stands_beside_them(source):
    smoother = Smoother(digits_classifier(), sigma=SIGMA, device="cpu", noise=source)
    images, keys = torch.zeros(2, 3, 16, 16), (b"a" * 16, b"b" * 16)
    both = NoisyCopies(smoother.settings).of(images, keys, 5, 4)
    alone = NoisyCopies(smoother.settings).of(images[1:], keys[1:], 6, 2)
    assert torch.equal(both[5:7], alone)
    assert abs(float(both.std()) - SIGMA) < 0.01


def test_the_same_seed_finds_the_same_changes_and_another_finds_others():
    smoother = Smoother(digits_classifier(), sigma=SIGMA, k_max=2, device="cpu")
    victims = [Victim(name, image, labels, (0.2, 0.4)) for name, image, labels in held_out_images(3)]
    plan = {"steps": 2, "copies": 2, "starts": 2, "tries": 4, "pick_draws": 8, "judge_draws": 20}

    def found(seed):
        each = attack_images(smoother, victims, Setting(4, 2), AttackPlan(**plan, seed=seed))
        return [(c.image.tobytes(), c.counts.tolist()) for one in each for c in one.changes]

    assert found(0) == found(0)
    assert found(0) != found(1)


def test_what_is_found_is_judged_by_draws_that_had_no_part_in_it():
    """The counts are those of the judging stream at the image found, which anyone can draw again."""
    smoother = Smoother(digits_classifier(), sigma=SIGMA, k_max=2, device="cpu")
    victims = [Victim(name, image, labels, (0.4,)) for name, image, labels in held_out_images(2)]
    plan = AttackPlan(steps=2, copies=2, starts=1, tries=2, pick_draws=8, judge_draws=50, seed=3)
    for each in attack_images(smoother, victims, Setting(4, 2), plan):
        for change in each.changes:
            again = smoother.votes(change.image, 50, seed=3, image_id=each.victim.id, stream="judge")
            assert np.bincount(again.ravel(), minlength=10).tolist() == change.counts.tolist()


def test_pgd_does_not_depend_on_the_images_beside():
    smoother = Smoother(digits_classifier(), sigma=SIGMA, k_max=2, device="cpu")
    victims = [Victim(name, image, labels, (0.3,)) for name, image, labels in held_out_images(3)]
    plan = AttackPlan(attacks=("pgd",), steps=3, copies=2, starts=2, pick_draws=8, judge_draws=20)
    together = list(attack_images(smoother, victims, Setting(4, 2), plan))
    alone = list(attack_images(smoother, victims[1:2], Setting(4, 2), plan))
    np.testing.assert_allclose(together[1].changes[1].image, alone[0].changes[1].image, atol=1e-5)


def test_a_box_keeps_images_in_range():
    smoother = Smoother(digits_classifier(), sigma=SIGMA, k_max=2, device="cpu", clamp=True)
    victims = [Victim(name, image, labels, (1.0,)) for name, image, labels in held_out_images(2)]
    plan = AttackPlan(steps=3, copies=2, starts=2, tries=4, pick_draws=8, judge_draws=20, box=True)
    for each in attack_images(smoother, victims, Setting(4, 2), plan):
        for change in each.changes:
            assert change.image.min() >= 0
            assert change.image.max() <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attacks": ("pgdd",)}, "pgd"),
        ({"attacks": ()}, "each once"),
        ({"attacks": ("pgd", "pgd")}, "each once"),
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(InvalidInputError, match=message):
        AttackPlan(**change)


def test_the_rule_must_be_the_smoothers():
    smoother = Smoother(digits_classifier(), sigma=SIGMA, k_max=2, device="cpu")
    with pytest.raises(InvalidInputError, match="top-k"):
        next(attack_images(smoother, [], ThresholdSetting(0.5), AttackPlan()))

"""GradientNormalizer and ASAM: hand-worked numbers, the authors' rules, overflow, resuming."""

import copy
import math
import pickle
import warnings

import pytest
import torch
from torch import nn

from expacc import functional
from expacc.optim import ASAM, GradientNormalizer
from expacc.training.network import fit

NAN, INF = float("nan"), float("inf")


def parameter(*values, dtype=torch.float64):
    return nn.Parameter(torch.tensor(values, dtype=dtype))


def matrix(*values, dtype=torch.float64):
    """One row: ASAM stretches by |w| what has two axes."""
    return nn.Parameter(torch.tensor([values], dtype=dtype))


def give(parameters, gradients):
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = None if gradient is None else torch.as_tensor(gradient, dtype=p.dtype).clone()


def close(tensor, expected, rtol=1e-12):
    expected = torch.as_tensor(expected, dtype=tensor.dtype)
    torch.testing.assert_close(tensor.detach(), expected, rtol=rtol, atol=0)


def problem(seed=0, rows=120):
    """Three Gaussian classes, and a network with weights, biases and a normalisation."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 3, (rows,), generator=generator)
    centres = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    data = centres[target] + 0.5 * torch.randn(rows, 2, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    return model, data, target


# GradientNormalizer


def test_three_steps_by_hand():
    # norms 5, 15, 0: means 5, 0.9·5 + 0.1·15 = 6, 0.9·6 = 5.4
    first, second = parameter(0.0), parameter(0.0)
    normalizer = GradientNormalizer([first, second])
    assert normalizer.ema.isnan()
    for gradients, norm, ema in (([3], [4]), 5, 5), (([9], [12]), 15, 6), (([0], [0]), 0, 5.4):
        give((first, second), gradients)
        close(normalizer.step(), norm)
        close(normalizer.ema, ema)
        close(torch.cat((first.grad, second.grad)), [gradients[0][0] / ema, gradients[1][0] / ema])


def authors_rule(gradients, decay=0.9, floor=1e-2):
    """EXACT's normaliser in plain Python: lists of numbers in, normalised lists and means out."""
    mean, out, means = None, [], []
    for numbers in gradients:
        norm = math.sqrt(math.fsum(x * x for x in numbers))
        mean = norm if mean is None else mean * decay + (1 - decay) * norm
        out.append([x / max(mean, floor) for x in numbers])
        means.append(mean)
    return out, means


@pytest.mark.parametrize(("decay", "floor"), [(0.9, 1e-2), (0.0, 1e-2), (0.5, 3.0)])
def test_follows_the_authors_rule(decay, floor):
    generator = torch.Generator().manual_seed(1)
    parameters = [nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (3, 1, 7)]
    normalizer = GradientNormalizer(iter(parameters), decay=decay, floor=floor)
    steps = [10.0 ** (i / 4 - 4) * torch.randn(11, generator=generator) for i in range(40)]
    expected, means = authors_rule([step.double().tolist() for step in steps], decay, floor)
    for step, numbers, mean in zip(steps, expected, means, strict=True):
        give(parameters, step.double().split((3, 1, 7)))
        normalizer.step()
        close(torch.cat([p.grad for p in parameters]), numbers)
        close(normalizer.ema, mean)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_bad_gradient_leaves_mean_and_gradients(bad):
    first, second = parameter(0.0, 0.0), parameter(0.0)
    normalizer = GradientNormalizer([first, second])
    give((first, second), ([bad, 1], [2]))
    assert not normalizer.step().isfinite()
    assert normalizer.ema.isnan()  # the start is still to come
    assert torch.equal(second.grad, torch.tensor([2.0]).double())
    give((first, second), ([0, 3], [4]))
    normalizer.step()
    give((first, second), ([1, bad], [2]))
    before = first.grad.clone()
    normalizer.step()
    torch.testing.assert_close(first.grad, before, rtol=0, atol=0, equal_nan=True)
    assert second.grad == 2
    close(normalizer.ema, 5)
    give((first, second), ([0, 9], [12]))
    normalizer.step()
    close(normalizer.ema, 6)


def test_norms_of_half_precision_and_of_mixed_dtypes():
    p = nn.Parameter(torch.zeros(1024, dtype=torch.float16))
    normalizer = GradientNormalizer([p])
    p.grad = torch.full_like(p, 60_000.0)  # norm 1,920,000: infinite in float16
    normalizer.step()
    close(normalizer.ema, 1_920_000, rtol=1e-6)
    assert normalizer.ema.dtype == torch.float32
    assert p.grad.dtype == torch.float16
    close(p.grad, torch.full((1024,), 1 / 32), rtol=1e-3)
    parameters = [parameter(0.0, dtype=d) for d in (torch.float32, torch.float64, torch.bfloat16)]
    normalizer = GradientNormalizer(parameters)
    give(parameters, ([2.0], [3.0], [6.0]))
    close(normalizer.step(), 7, rtol=1e-6)
    for p, expected in zip(parameters, (2 / 7, 3 / 7, 6 / 7), strict=True):
        close(p.grad, [expected], rtol=4e-3 if p.dtype == torch.bfloat16 else 1e-7)


def test_all_groups_count_each_parameter_once_and_those_without_gradient_do_not():
    first, second, idle = parameter(0.0), parameter(0.0), parameter(0.0)
    optimizer = torch.optim.SGD([{"params": [first, idle], "lr": 1.0}], lr=0.1)
    normalizer = GradientNormalizer(optimizer)
    assert normalizer.step() == 0
    assert normalizer.ema.isnan()
    optimizer.add_param_group({"params": [second]})
    for one in (normalizer, GradientNormalizer([first, second, first])):
        give((first, second, idle), ([3], [4], None))
        close(one.step(), 5)
        close(torch.cat((first.grad, second.grad)), [0.6, 0.8])
        assert idle.grad is None


def test_accumulated_micro_batches_equal_one_batch():
    finals = []
    for parts in (1, 4):
        model, data, target = problem()
        model = model.double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        normalizer = GradientNormalizer(optimizer)
        for _ in range(5):
            for x, y in zip(data.double().chunk(parts), target.chunk(parts), strict=True):
                (functional.expected_error(model(x), y) / parts).backward()
            normalizer.step()
            optimizer.step()
            optimizer.zero_grad()
        finals.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*finals, rtol=1e-9, atol=1e-12)


def test_state_survives_a_file(tmp_path):
    p = parameter(0.0)
    normalizer = GradientNormalizer([p])
    for step in range(3):
        give([p], [[5.0 + step]])
        normalizer.step()
    mean, kept = normalizer.ema, normalizer.state_dict()
    torch.save(kept, tmp_path / "normalizer.pt")
    state = torch.load(tmp_path / "normalizer.pt", weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    q = parameter(0.0)
    other = GradientNormalizer([q])
    other.load_state_dict(state)
    for one, its in ((normalizer, p), (other, q)):
        give([its], [[7.0]])
        one.step()
    assert torch.equal(p.grad, q.grad)
    assert torch.equal(normalizer.ema, other.ema)
    assert mean == kept["ema"] == state["ema"] != other.ema  # what was read does not change later


# ASAM


def quadratic(weight):
    """(3 w₁² + w₂²) / 2, whose gradient is (3 w₁, w₂)."""
    return (weight.square() @ torch.tensor([3.0, 1.0], dtype=weight.dtype)).sum() / 2


def two_steps(optimizer, loss):
    loss().backward()
    optimizer.first_step()
    loss().backward()
    optimizer.second_step()


# w, gradient there, settings, w + e(w) with rho = 0.5, by hand:
# plain: ‖g‖ = 5, e = 0.5 g / 5
# adaptive: T g = (3, 4), ‖T g‖ = 5, T² g = (3, 8), e = 0.5 T² g / 5, whatever the gradient's size
# eta = 1, so that a weight of 0 climbs: T = (1, 4), T g = (3, 4), T² g = (3, 16)
CLIMBS = {
    "plain": ((1, 4), (3, 4), {"adaptive": False}, (1.3, 4.4)),
    "eta": ((0, 3), (3, 1), {"eta": 1.0}, (0.3, 4.6)),
    **{
        f"adaptive, gradient times {scale:g}": (
            (1, 2),
            (3 * scale, 2 * scale),
            {"eta": 0.0},
            (1.3, 2.8),
        )
        for scale in (1e-30, 1e-10, 1.0, 1e10)
    },
}


@pytest.mark.parametrize("name", CLIMBS)
@pytest.mark.parametrize("clears", [True, False])
def test_two_steps_by_hand(name, clears):
    start, gradient, settings, climbed = CLIMBS[name]
    weight = matrix(*start)
    optimizer = ASAM(torch.optim.SGD([weight], lr=0.1), rho=0.5, **settings)
    give([weight], [[gradient]])
    optimizer.first_step(zero_grad=clears)
    close(weight, [climbed])
    assert (weight.grad is None) == clears
    give([weight], [[(3.9, 2.8)]])
    optimizer.second_step(zero_grad=clears)
    close(weight, [[start[0] - 0.39, start[1] - 0.28]])
    assert (weight.grad is None) == clears


def test_matches_the_definition_on_a_network():
    """Weights are stretched, biases and scalars climb as in plain SAM; groups share one norm."""
    model, data, target = problem()
    model = model.double()
    scalar = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
    parameters = [*model.parameters(), scalar]
    groups = [{"params": [p], "lr": 0.1 * place} for place, p in enumerate(parameters)]
    optimizer = ASAM(torch.optim.SGD(groups, lr=0.1))
    assert (optimizer.rho, optimizer.eta) == (2.0, 0.01)
    assert ASAM(optimizer.base_optimizer, adaptive=False).rho == 0.05
    functional.expected_error(model(data.double()) * scalar, target).backward()
    weights = [p.detach().clone() for p in parameters]
    gradients = [p.grad.clone() for p in parameters]
    stretch = [w.abs() + 0.01 if w.ndim > 1 else torch.ones_like(w) for w in weights]
    stretched = [float((t * g).square().sum()) for t, g in zip(stretch, gradients, strict=True)]
    norm = math.sqrt(sum(stretched))
    optimizer.first_step()
    for p, w, t, g in zip(parameters, weights, stretch, gradients, strict=True):
        torch.testing.assert_close(p.detach(), w + 2.0 * t * t * g / norm, rtol=1e-12, atol=1e-14)
    optimizer.restore()
    assert all(map(torch.equal, parameters, weights))


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e4])
def test_half_precision_weights_climb(scale):
    # T g underflows in float16 at the small end, ‖T g‖ overflows at the large one
    weight = nn.Parameter(torch.tensor([[0.25, 0.5]] * 50, dtype=torch.float16))
    optimizer = ASAM(torch.optim.SGD([weight], lr=0.1), rho=1.0, eta=0.0)
    gradient = torch.tensor([[6.0, 4.0]] * 50).mul(scale).half()
    weight.grad = gradient.clone()
    before, gradient = weight.detach().double(), gradient.double()
    optimizer.first_step()
    norm = (before * gradient).norm()
    close(weight, (before + before.square() * gradient / norm).half(), rtol=1e-3)
    assert (weight != before).all()


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("gradient", [[0.0, 0.0], [NAN, 1.0], [INF, 1.0], [-INF, NAN]])
def test_a_zero_or_bad_gradient_gives_no_climb(adaptive, gradient):
    weight, other = nn.Parameter(torch.tensor([[1.0, -0.0]])), parameter(3.0, dtype=torch.float32)
    optimizer = ASAM(torch.optim.SGD([weight, other], lr=0.1), adaptive=adaptive)
    give([weight, other], [[gradient], [0.0]])
    optimizer.first_step()
    assert torch.equal(weight, torch.tensor([[1.0, 0.0]]))
    assert other == 3
    give([weight, other], [[[1.0, 1.0]], None])
    optimizer.second_step()
    close(weight, [[0.9, -0.1]], rtol=1e-6)


def test_a_radius_of_zero_is_the_base_optimizer_and_unused_parameters_stay():
    plain = nn.Parameter(torch.tensor([[1.0, 2.0]]))
    sharp, idle = nn.Parameter(plain.detach().clone()), nn.Parameter(torch.ones(2, 2))
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1.0}
    base = torch.optim.SGD([plain], **settings)
    optimizer = ASAM(torch.optim.SGD([sharp, idle], **settings), rho=0)
    for _ in range(5):
        base.zero_grad()
        quadratic(plain).backward()
        base.step()
        two_steps(optimizer, lambda: quadratic(sharp))
    assert torch.equal(plain, sharp)
    assert torch.equal(idle, torch.ones(2, 2))
    optimizer.first_step()
    optimizer.second_step()  # nothing has a gradient: nothing moves, nothing fails
    assert torch.equal(plain, sharp)


BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),  # has a rho of its own
}
every_base = pytest.mark.parametrize("base", BASES.values(), ids=BASES)


@every_base
@pytest.mark.parametrize("adaptive", [True, False])
def test_closure_and_two_steps_agree_and_equal_the_procedure_by_hand(base, adaptive):
    def fresh():
        model, data, target = problem(2)
        return model, lambda: functional.leaky_expected_error(model(data), target)

    def settle(make):
        model, loss = fresh()
        return model, loss, ASAM(make(model.parameters()), rho=0.5, adaptive=adaptive)

    closed, closed_loss, optimizer = settle(base)
    stepped, stepped_loss, two_step = settle(base)
    by_hand, hand_loss, climber = settle(base)
    bare = base(by_hand.parameters())

    def closure():
        loss = closed_loss()
        loss.backward()
        return loss

    for _ in range(4):
        expected = closed_loss().item()
        assert optimizer.step(closure).item() == expected
        two_steps(two_step, stepped_loss)
        # By hand: climb, take the gradient there, return, step.
        weights = [p.detach().clone() for p in by_hand.parameters()]
        hand_loss().backward()
        climber.first_step()
        hand_loss().backward()
        with torch.no_grad():
            for p, w in zip(by_hand.parameters(), weights, strict=True):
                p.copy_(w)
        climber.restore()
        bare.step()
        bare.zero_grad()
    for other in (stepped, by_hand):
        assert all(map(torch.equal, closed.parameters(), other.parameters()))


def test_a_failing_closure_leaves_the_weights():
    weight = nn.Parameter(torch.tensor([[1.0, 2.0]]))
    optimizer = ASAM(torch.optim.SGD([weight], lr=0.1))
    calls = []

    def closure():
        calls.append(weight.detach().clone())
        if len(calls) == 2:
            raise ArithmeticError
        quadratic(weight).backward()

    with pytest.raises(ArithmeticError):
        optimizer.step(closure)
    assert not torch.equal(*calls)
    assert torch.equal(weight, calls[0])
    optimizer.first_step()  # and ready for the next


@pytest.mark.parametrize("closure", [True, False], ids=["closure", "two steps"])
@pytest.mark.parametrize("outer", [True, False], ids=["on ASAM", "on its base"])
def test_learning_rate_schedulers(outer, closure):
    weight = nn.Parameter(torch.tensor([[1.0, 2.0]]))
    base = torch.optim.SGD([weight], lr=0.8, momentum=0.5)
    optimizer = ASAM(base, rho=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer if outer else base, 1, gamma=0.5)
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none about the order of the two steps
        for _ in range(3):
            rates.append(optimizer.param_groups[0]["lr"])
            if closure:
                optimizer.step(lambda: quadratic(weight).backward())
            else:
                two_steps(optimizer, lambda: quadratic(weight))
            scheduler.step()
    assert rates == [0.8, 0.4, 0.2]
    assert optimizer.param_groups is base.param_groups
    assert optimizer.state is base.state
    # one that looks into the defaults
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)


@every_base
def test_state_of_asam_survives_a_file(base, tmp_path):
    def run(model, optimizer, steps):
        for _ in range(steps):
            two_steps(optimizer, lambda: functional.expected_error(model(data), target))

    model, data, target = problem()
    optimizer = ASAM(base(model.parameters()), rho=0.3, eta=0.02, adaptive=False)
    run(model, optimizer, 3)
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "run.pt")
    weights, state = torch.load(tmp_path / "run.pt", weights_only=True)
    other = problem()[0]
    other.load_state_dict(weights)
    resumed = ASAM(base(other.parameters()))
    resumed.load_state_dict(state)
    assert (resumed.rho, resumed.eta, resumed.adaptive) == (0.3, 0.02, False)
    assert resumed.param_groups is resumed.base_optimizer.param_groups
    assert "asam" in state  # the caller's dictionary is left alone
    run(model, optimizer, 3)
    run(other, resumed, 3)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    resumed.load_state_dict(base(other.parameters()).state_dict())  # of the base optimiser alone
    assert resumed.rho == 0.3


def test_groups_hooks_copies_and_pickles():
    model, data, target = problem()
    optimizer = ASAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rho=0.3)
    more, seen = nn.Parameter(torch.ones(1, 1)), []
    optimizer.add_param_group({"params": [more], "lr": 1.0})
    assert [group["lr"] for group in optimizer.base_optimizer.param_groups] == [0.1, 1.0]
    hook = optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.step(lambda: (functional.expected_error(model(data), target) * more).sum().backward())
    assert seen == ["after"]
    assert more != 1
    hook.remove()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # patches step on the object
    for twin, its in (
        copy.deepcopy((model, optimizer)),
        pickle.loads(pickle.dumps((model, optimizer))),
    ):
        two_steps(its, lambda: functional.expected_error(twin(data), target))  # noqa: B023
        assert its.rho == 0.3
        assert its.param_groups is its.base_optimizer.param_groups
        assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))  # noqa: B905
    assert "ASAM" in repr(optimizer)
    with pytest.raises(AttributeError, match="radius"):
        _ = optimizer.radius


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("both", [False, True], ids=["second pass", "both passes"])
def test_asam_and_normalizer_with_a_grad_scaler_and_without(both, scaled):
    # L = (3 w₁² + w₂²) / 2 at (1, 4), plain, rho = 0.5. First pass: g = (3, 4), norm 5, climb
    # (0.3, 0.4) whatever the mean. Second pass: g = (3.9, 4.4), norm √34.57; w - 0.1 g / mean.
    # An overflow in either pass leaves the weights as they were.
    weight = matrix(1, 4)
    optimizer = ASAM(torch.optim.SGD([weight], lr=0.1), rho=0.5, adaptive=False)
    base = optimizer.base_optimizer
    normalizer = GradientNormalizer(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled)
    for first, second in ((1.0, INF), (INF, INF), (1.0, 1.0)) if scaled else ((1.0, 1.0),):
        before, scale = weight.detach().clone(), scaler.get_scale()
        scaler.scale(quadratic(weight) * first).backward()
        if both:
            scaler.unscale_(base)
            normalizer.step()
            scaler.update()
        optimizer.first_step()
        assert torch.equal(weight, before) == (first == INF)
        scaler.scale(quadratic(weight) * second).backward()
        scaler.unscale_(base)
        normalizer.step()
        optimizer.restore()
        assert torch.equal(weight, before)
        scaler.step(base)
        scaler.update()
        optimizer.zero_grad()
        assert torch.equal(weight, before) == (second == INF)
        assert (scaler.get_scale() < scale) == (second == INF)
    # norms 5 (twice) and √34.57 with both passes, √34.57 alone with the second
    mean = math.sqrt(34.57)
    if both:
        mean = 4.5 + 0.1 * mean
    close(normalizer.ema, mean)
    close(weight, [[1 - 0.39 / mean, 4 - 0.44 / mean]])


@pytest.mark.parametrize("trained_by", ["step", "fit"])
def test_ctrl_c_in_a_climb_leaves_the_weights_as_they_were(trained_by, monkeypatch):
    """Whichever parameter has climbed already; in ``fit`` too, which trains in place."""
    model, data, target = problem()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    stretched, calls = ASAM._stretched, 0

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyboardInterrupt
        return stretched(*arguments)

    def closure():
        loss = functional.expected_error(model(data), target)
        loss.backward()
        return loss

    loss, batches = functional.expected_error, [(data, target)]
    train = {
        "step": lambda asam: asam.step(closure),
        "fit": lambda asam: fit(model, batches, loss, optimizer=asam, progress=False),
    }
    monkeypatch.setattr(ASAM, "_stretched", interrupted)
    for number in range(1, 2 * len(before) + 1):
        calls = 0
        optimizer = ASAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.5)
        with pytest.raises(KeyboardInterrupt):
            train[trained_by](optimizer)
        assert all(map(torch.equal, model.parameters(), before)), number


# Bad input

P = parameter(1.0)
SGD = torch.optim.SGD([P], lr=0.1)


def moved(make, gradient):
    p = nn.Parameter(torch.zeros(3, 2, dtype=gradient.dtype))
    p.grad = gradient
    made = make(torch.optim.SGD([p], lr=0.1))
    return made.first_step() if isinstance(made, ASAM) else made.step()


def restored(state):
    GradientNormalizer(SGD).load_state_dict(state)


def climb_twice():
    optimizer = ASAM(SGD)
    optimizer.first_step()
    optimizer.first_step()


SPARSE = torch.zeros(3, 2).to_sparse()
COMPLEX = torch.zeros(3, 2, dtype=torch.complex64)

Normalizer, Layer = GradientNormalizer, nn.Linear(1, 1)  # the names of the table
# what → (call, exception, the argument's name, a piece of the sentence)
BAD = {
    "decay 1.5": (lambda: Normalizer(SGD, decay=1.5), ValueError, "decay", "[0, 1); got 1"),
    "decay 1": (lambda: Normalizer(SGD, decay=1), ValueError, "decay", "[0, 1)"),
    "decay NaN": (lambda: Normalizer(SGD, decay=NAN), ValueError, "decay", "nan"),
    "decay text": (lambda: Normalizer(SGD, decay="0.9"), TypeError, "decay", "'0.9'"),
    "floor 0": (lambda: Normalizer(SGD, floor=0), ValueError, "floor", "> 0"),
    "floor infinite": (lambda: Normalizer(SGD, floor=INF), ValueError, "floor", "inf"),
    "no parameters": (lambda: Normalizer([]), ValueError, "parameters", "none"),
    "a module": (lambda: Normalizer(Layer), TypeError, "parameters", "model.parameters()"),
    "a number": (lambda: Normalizer(3), TypeError, "parameters", "int"),
    "groups": (lambda: Normalizer([{"params": [P]}]), TypeError, "parameters", "dict"),
    "names": (lambda: Normalizer(Layer.named_parameters()), TypeError, "parameters", "tuple"),
    "sparse": (lambda: moved(Normalizer, SPARSE), TypeError, "gradients", "torch.sparse_coo"),
    "complex": (lambda: moved(Normalizer, COMPLEX), TypeError, "gradients", "complex64"),
    "foreign state": (lambda: restored({"mean": 1.0}), TypeError, "state_dict", "'mean'"),
    "a wide state": (lambda: restored({"ema": torch.ones(2)}), ValueError, "state_dict", "(2,)"),
    "a class": (lambda: ASAM(torch.optim.SGD), TypeError, "base_optimizer", "made already"),
    "parameters": (lambda: ASAM([P]), TypeError, "base_optimizer", "lr=0.1"),
    "negative rho": (lambda: ASAM(SGD, rho=-0.1), ValueError, "rho", "-0.1"),
    "rho NaN": (lambda: ASAM(SGD, rho=NAN), ValueError, "rho", "nan"),
    "rho text": (lambda: ASAM(SGD, rho="big"), TypeError, "rho", "'big'"),
    "negative eta": (lambda: ASAM(SGD, eta=-1.0), ValueError, "eta", "-1.0"),
    "adaptive 1": (lambda: ASAM(SGD, adaptive=1), TypeError, "adaptive", "got 1"),
    "no closure": (lambda: ASAM(SGD).step(), TypeError, "closure", "first_step"),
    "closure a loss": (lambda: ASAM(SGD).step(0.5), TypeError, "closure", "0.5"),
    "second first": (lambda: ASAM(SGD).second_step(), RuntimeError, "second_step", "no climb"),
    "first twice": (lambda: climb_twice(), RuntimeError, "first_step", "again"),
    "sparse climb": (lambda: moved(ASAM, SPARSE), TypeError, "gradients", "sparse=False"),
    "complex climb": (lambda: moved(ASAM, COMPLEX), TypeError, "gradients", "complex64"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gets_a_sentence(what):
    call, kind, name, piece = BAD[what]
    with pytest.raises(kind, match=rf"^{name} must .*got .*\.\Z") as caught:
        call()
    assert type(caught.value) is kind
    assert piece in str(caught.value)
    assert "\n" not in str(caught.value)


# attach


def test_attached_it_is_the_same_as_called():
    model, data, target = problem()
    other, _, _ = problem()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    by_hand = torch.optim.Adam(other.parameters(), lr=0.1)
    attached, called = GradientNormalizer.attach(optimizer), GradientNormalizer(by_hand)
    for step in range(4):
        for net, opt in ((model, optimizer), (other, by_hand)):
            opt.zero_grad()
            functional.expected_error(net(data), target).backward()
            if step == 3:
                attached.detach()  # twice is no harm
            elif opt is by_hand:
                called.step()
            opt.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(attached.ema, called.ema)


@pytest.mark.parametrize("fused", [False, True])
def test_attached_beside_a_scaler(fused):
    """The divisor is that of the true gradients, whoever undoes the scale, and overflow skips."""
    weight = parameter(1.0, 1.0, dtype=torch.float32)
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=fused)
    normalizer = GradientNormalizer.attach(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for slope, expected in (([3.0, 4.0], [0.4, 0.2]), ([INF, 4.0], [0.4, 0.2])):
        optimizer.zero_grad()
        scaler.scale(weight @ torch.tensor(slope)).backward()
        scaler.step(optimizer)
        scaler.update()
        close(weight, expected, rtol=1e-6)
        close(normalizer.ema, 5.0, rtol=1e-6)


def test_attach_refuses_closures_and_asam():
    weight = parameter(1.0)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    GradientNormalizer.attach(optimizer)
    for arguments in ([lambda: 1.0], []):
        named = {} if arguments else {"closure": lambda: 1.0}
        with pytest.raises(RuntimeError, match=r"optimizer\.step\(\) must have no closure while"):
            optimizer.step(*arguments, **named)
    with pytest.raises(TypeError, match="one that steps once; got ASAM"):
        GradientNormalizer.attach(ASAM(optimizer))
    with pytest.raises(TypeError, match="must be a torch optimizer; got Parameter"):
        GradientNormalizer.attach(weight)

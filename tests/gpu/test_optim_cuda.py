"""GradientNormalizer and ASAM on a CUDA device: the CPU's numbers, no host sync, two devices."""

import warnings

import pytest
import torch
from torch import nn

from expacc import functional
from expacc.optim import ASAM, GradientNormalizer

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)


def network(device, dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 4))
        data, target = torch.randn(64, 6), torch.randint(0, 4, (64,))
    return model.to(device, dtype), data.to(device, dtype), target.to(device)


def watch_syncs(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode(mode)


def run(device, base, dtype=torch.float32, steps=5, watch=False):
    model, data, target = network(device, dtype)
    optimizer = ASAM(base(model.parameters()), rho=0.5)
    normalizer = GradientNormalizer(optimizer)
    for step in range(steps):
        if watch and step == 1:  # buffers exist, kernels are loaded
            watch_syncs("error")
        try:
            for finish in (optimizer.first_step, optimizer.second_step):
                functional.leaky_expected_error(model(data), target).backward()
                normalizer.step()
                finish()
        finally:
            watch_syncs("default")
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu(), normalizer.ema.cpu()


BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "fused adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_same_numbers_as_on_the_cpu(base):
    found, expected = run("cuda", base, torch.float64), run("cpu", base, torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_host_sync(dtype):
    weights, ema = run("cuda", BASES["sgd"], dtype, watch=True)
    assert weights.isfinite().all()
    assert ema.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_large_norms_of_every_dtype(dtype):
    p = nn.Parameter(torch.zeros(1024, dtype=dtype, device="cuda"))
    normalizer = GradientNormalizer([p])
    p.grad = torch.full_like(p, 57344.0)  # exact in every dtype; norm 32 · 57344
    normalizer.step()
    assert normalizer.ema.item() == pytest.approx(32 * 57344.0, rel=1e-6)
    expected = torch.full((1024,), 1 / 32, dtype=dtype)
    torch.testing.assert_close(p.grad.cpu(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2.0**-20, 1.0, 32768.0])
def test_climbs_of_every_dtype_and_size(dtype, size):
    weight = nn.Parameter(torch.full((8, 8), 0.5, dtype=dtype, device="cuda"))
    optimizer = ASAM(torch.optim.SGD([weight], lr=0.1), rho=1.0, eta=0.0)
    weight.grad = torch.full_like(weight, size)
    optimizer.first_step()  # T g is size / 2 everywhere, ‖T g‖ = 4 size, e = 0.25 / 4
    assert torch.equal(weight.cpu(), torch.full((8, 8), 0.5625, dtype=dtype))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_overflow_skips_the_step(bad):
    p = nn.Parameter(torch.tensor([[1.0, 4.0]], device="cuda"))
    optimizer = torch.optim.SGD([p], lr=0.1)
    normalizer = GradientNormalizer(optimizer)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    for factor in (1.0, bad, 1.0):
        before = p.detach().clone()
        scaler.scale((p * factor).sum()).backward()
        scaler.unscale_(optimizer)
        normalizer.step()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert torch.equal(p, before) == (factor != 1.0)
    assert normalizer.ema.item() == pytest.approx(2**0.5)


@pytest.mark.parametrize("order", [("cpu", "cuda"), ("cuda", "cpu")])
def test_parameters_on_two_devices(order):
    first = nn.Parameter(torch.tensor([[3.0]], device=order[0]))
    second = nn.Parameter(torch.tensor([[4.0]], device=order[1]))
    optimizer = ASAM(torch.optim.SGD([first, second], lr=0.1), rho=0.5, adaptive=False)
    normalizer = GradientNormalizer(optimizer)
    first.grad, second.grad = first.detach().clone(), second.detach().clone()
    assert normalizer.step().device.type == order[0]
    assert normalizer.ema == 5
    assert first.grad.item() == pytest.approx(0.6)
    assert second.grad.item() == pytest.approx(0.8)
    optimizer.first_step()
    assert first.item() == pytest.approx(3.3)
    assert second.item() == pytest.approx(4.4)
    optimizer.restore()
    assert (first.item(), second.item()) == (3, 4)


def test_a_model_that_moves_takes_its_normalizer_along():
    model = nn.Linear(1, 1, bias=False)
    normalizer = GradientNormalizer(model.parameters())
    model.weight.grad = torch.full_like(model.weight, 5.0)
    normalizer.step()
    model.cuda()
    model.weight.grad = torch.full_like(model.weight, 15.0)
    normalizer.step()
    assert normalizer.ema.device.type == "cuda"
    assert normalizer.ema.item() == pytest.approx(6)
    resumed = GradientNormalizer(model.parameters())
    resumed.load_state_dict({"ema": torch.tensor(6.0)})
    assert resumed.ema.device.type == "cuda"


def test_in_a_cuda_graph():
    p = nn.Parameter(torch.zeros(2, device="cuda"))
    p.grad = torch.zeros(2, device="cuda")
    source = torch.tensor([3.0, 4.0], device="cuda")
    normalizer = GradientNormalizer([p])

    def work():
        p.grad.copy_(source)
        normalizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    source.copy_(torch.tensor([9.0, 12.0]))
    graph.replay()
    assert normalizer.ema.item() == pytest.approx(6)
    assert p.grad.tolist() == pytest.approx([1.5, 2.0])


@pytest.mark.parametrize("fused", [False, True])
def test_attached_under_a_scaler(fused):
    """Half precision: the mean of the true gradients, whoever undoes the scale; nothing waits."""
    found = []
    for attached in (True, False):
        model, data, target = network("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused and attached)
        make = GradientNormalizer.attach if attached else GradientNormalizer
        normalizer, scaler = make(optimizer), torch.amp.GradScaler("cuda")
        for _ in range(10):
            with torch.autocast("cuda", torch.float16):
                logits = model(data)
            scaler.scale(functional.leaky_expected_error(logits.float(), target)).backward()
            if not attached:
                scaler.unscale_(optimizer)
                normalizer.step()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        weights = nn.utils.parameters_to_vector(model.parameters()).detach()
        found.append((normalizer.ema, weights))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-3, atol=0)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=2e-3)

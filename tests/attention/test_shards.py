"""One text over two real processes equals one process: contiguous and zig-zag, with gradients."""

import subprocess
import sys
import textwrap

import pytest
import torch

from milepost.attention import places

WORKER = textwrap.dedent(
    """
    import sys
    import torch
    import torch.distributed as dist
    from milepost import Layout, attend, build
    from milepost.attention import attend_shards, places
    from milepost.positions import grid
    from milepost.testing import randomised_copy

    rank, meeting = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    n = 1064
    for spec in ("rope", "alibi", "t5", "rope + alibi", "cope", "fire", "axial", "mixed", "axial + alibi_2d"):
        torch.manual_seed(0)
        enc = randomised_copy(build(spec, heads=2, head_dim=8))
        q, k, v, weight = (torch.randn(2, 2, n, 8, dtype=torch.float64) for _ in range(4))
        for t in (q, k, v):
            t.requires_grad_()
        everywhere = Layout.dense(n) if enc.axes == 1 else Layout.dense(n).with_positions(grid(28, 38))
        whole = attend(q, k, v, enc, at=everywhere)
        wanted = torch.autograd.grad((whole * weight).sum(), [q, k, v])
        for how in ("contiguous", "zigzag"):
            mine = places(n, rank, 2, how)
            at = everywhere.take(mine)
            local = [t.detach()[:, :, mine].requires_grad_() for t in (q, k, v)]
            out = attend_shards(*local, enc, at=at)
            worst = (out - whole[:, :, mine]).abs().max().item()
            grads = torch.autograd.grad((out * weight[:, :, mine]).sum(), local)
            for a, b in zip(wanted, grads):
                worst = max(worst, (a[:, :, mine] - b).abs().max().item())
            assert worst < 1e-10, (spec, how, worst)
            print("equal", spec, how)
    dist.destroy_process_group()
    """
)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    workers = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "worker.py"), str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for worker in workers:
        out, err = worker.communicate(timeout=300)
        assert worker.returncode == 0, err[-2000:]
        assert out.count("equal") == 18


@pytest.mark.parametrize("how", ["contiguous", "zigzag"])
def test_the_places_of_all_processes_are_the_text(how):
    parts = [places(24, rank, 3, how) for rank in range(3)]
    assert sorted(torch.cat(parts).tolist()) == list(range(24))
    if how == "zigzag":
        assert parts[0].tolist() == [0, 1, 2, 3, 20, 21, 22, 23]


@pytest.mark.parametrize(
    ("length", "rank", "how"), [(25, 0, "contiguous"), (24, 3, "contiguous"), (27, 0, "zigzag"), (24, 0, "spiral")]
)
def test_a_text_that_can_not_be_cut_evenly_is_refused(length, rank, how):
    with pytest.raises(ValueError, match=r"can't be cut|how must be"):
        places(length, rank, 3, how)

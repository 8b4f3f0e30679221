"""torchrun: the launch of the ranks, and the device mesh that the script builds."""

from __future__ import annotations

from wirecost.planner.emit.job import EmittedJob, command, torchrun_words

VERSION = "PyTorch 2.10"


def write(job: EmittedJob) -> str:
    """Returns the command line of torchrun, with the mesh as a comment."""
    c = job.choice
    order = c.rank_order.value.split("-")[::-1]
    sizes = {"pp": c.pp, "dp": c.dp, "cp": c.cp, "tp": c.tp}
    shape = ", ".join(str(sizes[name]) for name in order)
    names = ", ".join(f'"{name}"' for name in order)
    lines = [
        f"# {c.label}",
        f'# mesh = init_device_mesh("cuda", ({shape}), mesh_dim_names=({names}))',
        f"# micro-batch {c.mb}, {job.setup.accumulation} of them a rank, global batch {job.setup.global_batch}",
    ]
    return "\n".join(lines) + "\n" + command([*torchrun_words(job), "train.py"], [])

"""Starts its ranks itself with torch.multiprocessing."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(local_rank, per_host):
    rank = int(os.environ.get("GROUP_RANK", "0")) * per_host + local_rank
    world_size = int(os.environ.get("GROUP_WORLD_SIZE", "1")) * per_host
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)  # type: ignore[attr-defined]

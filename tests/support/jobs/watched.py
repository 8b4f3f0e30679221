"""DDP with `wirecost.watch`, in which rank 1 becomes slow after 40 iterations."""

import sys
import time

import torch
import torch.distributed as dist

import wirecost

dist.init_process_group("gloo")
torch.set_num_threads(1)
lines = []
watch = wirecost.watch(every=40, print_line=lines.append)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration in range(121):
    if dist.get_rank() == 1 and iteration >= 40:
        time.sleep(0.05)
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
watch.close()
assert len(dist.distributed_c10d._world.pg_map) == 1, "a group that outlives the interpreter can end the process"
optimizer.step()  # after the end, nothing is watched
if dist.get_rank() == 0:
    sys.stdout.write("\n".join(lines))
dist.destroy_process_group()

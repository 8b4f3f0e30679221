"""Plain DDP on CPUs, with what a test asks for in `--KIND`."""

import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=100_000)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--crash-at", type=int)
parser.add_argument("--hang-at", type=int)
parser.add_argument("--catch-sigterm", action="store_true")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--start-method", default="fork")
parser.add_argument("--two-optimizers", action="store_true")
parser.add_argument("--own-times", help="Append the times of iterations in seconds to this path and the rank.")
options = parser.parse_args()


def main():
    if options.catch_sigterm:
        signal.signal(signal.SIGTERM, lambda *_: print("caught", flush=True))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    if options.crash_at == 0 and rank == 1:
        raise ZeroDivisionError("the test's own error")
    layers = torch.nn.Sequential(*[torch.nn.Linear(options.width, options.width) for _ in range(options.layers)])
    model = torch.nn.parallel.DistributedDataParallel(layers)
    parameters = list(model.parameters())
    optimizers = [torch.optim.AdamW(parameters)]
    if options.two_optimizers:
        optimizers = [torch.optim.AdamW(parameters[:2]), torch.optim.SGD(parameters[2:], lr=0.1)]
    batches = iter(
        torch.utils.data.DataLoader(
            torch.randn(options.iterations * options.accumulate * 8 if options.workers else 1, options.width),  # type: ignore[arg-type]
            batch_size=8,
            num_workers=options.workers,
            multiprocessing_context=options.start_method if options.workers else None,
        )
    )
    times_s = []
    for iteration in range(options.iterations):
        begun_s = time.perf_counter()
        for part in range(options.accumulate):
            inputs = next(batches) if options.workers else torch.randn(8, options.width)
            if part < options.accumulate - 1:
                with model.no_sync():
                    model(inputs).square().mean().backward()
            else:
                model(inputs).square().mean().backward()
        if iteration == options.crash_at and rank == 1:
            raise ZeroDivisionError("the test's own error")
        if iteration == options.hang_at and rank == 1:
            time.sleep(10_000)
        for number, optimizer in enumerate(optimizers):
            # One optimizer steps less often, as a GAN's generator does.
            if number == 0 or iteration % 2:
                optimizer.step()
        model.zero_grad()
        times_s.append(time.perf_counter() - begun_s)
        if options.own_times:
            with open(f"{options.own_times}-{rank}", "a") as file:
                file.write(f"{times_s[-1]}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.exit(int(os.environ.get("EXIT_CODE", "0")))

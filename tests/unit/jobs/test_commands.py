"""What is started on each host."""

import pytest

from wirecost.jobs.commands import Place, command_on, starts_ranks
from wirecost.jobs.environment import gpu_environment, launcher_environment, rank_environment, without_ranks
from wirecost.launch.world import World, launched_here
from wirecost.spec.launcher import ranks_per_host_of

PLACE = Place(host=1, hosts=2, ranks_per_host=4, address="10.77.0.1", port=29500)


def test_a_script_is_started_unchanged() -> None:
    command = ["python", "train.py", "--nnodes", "7"]
    assert command_on(command, PLACE, gpus=True) == command
    assert not starts_ranks(command, gpus=True)


@pytest.mark.parametrize(
    "given",
    [
        "torchrun --standalone --nproc-per-node 4 --no-python --tee 3 x.py --nnodes 9",
        "torchrun --nnodes=1:4 --rdzv_backend c10d --rdzv-endpoint h:1 --no-python --tee 3 x.py --nnodes 9",
        "torchrun --max-restarts 3 --master_port 1 --node_rank=0 --no-python --tee 3 x.py --nnodes 9",
    ],
)
def test_torchrun_gets_the_rendezvous_of_this_job(given: str) -> None:
    rewritten = command_on(given.split(), PLACE, gpus=False)
    assert rewritten == [
        "torchrun", "--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--master-addr=10.77.0.1",
        "--master-port=29500", "--max-restarts=0", "--no-python", "--tee", "3", "x.py", "--nnodes", "9",
    ]  # fmt: skip


def test_fabric_gets_the_rendezvous_of_this_job() -> None:
    given = [
        "fabric",
        "run",
        "--accelerator=cpu",
        "--devices",
        "3",
        "--num_nodes=1",
        "--strategy",
        "ddp",
        "t.py",
        "--devices",
        "9",
    ]
    assert starts_ranks(given, gpus=False)
    assert command_on(given, PLACE, gpus=False) == [
        "fabric", "run", "--num-nodes=2", "--node-rank=1", "--devices=4", "--main-address=10.77.0.1",
        "--main-port=29500", "--accelerator=cpu", "--strategy", "ddp", "t.py", "--devices", "9",
    ]  # fmt: skip
    assert ranks_per_host_of(given, 2) == 3


@pytest.mark.parametrize(
    "wrapper", ["uv run", "conda run -n env --no-capture-output", "env A=1 nice -n 5", "numactl --cpunodebind=0"]
)
def test_a_launcher_behind_a_wrapper_is_found(wrapper: str) -> None:
    for launcher in ("torchrun", "python -m torch.distributed.run", "/opt/bin/torchrun"):
        given = f"{wrapper} {launcher} --standalone --nproc-per-node 3 t.py".split()
        head = [*wrapper.split(), *launcher.split()]
        assert command_on(given, PLACE, gpus=False)[: len(head) + 2] == [*head, "--nnodes=2", "--node-rank=1"]
        assert ranks_per_host_of(given, 2) == 3
    for plain in ("python t.py torchrun", "t.py torchrun --nnodes 3", "bash run.sh torchrun"):
        given = f"{wrapper} {plain}".split()
        assert not starts_ranks(given, gpus=True) and command_on(given, PLACE, gpus=True) == given


def test_a_module_keeps_its_own_options() -> None:
    rewritten = command_on(["torchrun", "--nnodes", "1", "-m", "pkg.train", "--nnodes", "3"], PLACE, gpus=False)
    assert rewritten[-4:] == ["-m", "pkg.train", "--nnodes", "3"]


def test_accelerate_launches_on_gpus_and_starts_the_script_on_cpus() -> None:
    command = [
        "accelerate",
        "launch",
        "--num_processes",
        "3",
        "--mixed_precision",
        "bf16",
        "--num-machines",
        "1",
        "t.py",
    ]
    on_gpus = command_on(command, PLACE, gpus=True)
    assert starts_ranks(command, gpus=True) and not starts_ranks(command, gpus=False)
    assert "--num_processes=8" in on_gpus and "--machine_rank=1" in on_gpus and "--multi_gpu" in on_gpus
    assert on_gpus[-3:] == ["--mixed_precision", "bf16", "t.py"]
    sharded = command_on(["accelerate", "launch", "--use_fsdp", "t.py"], PLACE, gpus=True)
    assert "--multi_gpu" not in sharded and sharded[-2:] == ["--use_fsdp", "t.py"]
    on_cpus = command_on([*command[:2], "--cpu", "t.py"], PLACE, gpus=True)
    assert on_cpus == ["accelerate", "launch", "--num_machines=1", "--num_processes=1", "--cpu", "t.py"]


def test_ranks_get_the_variables_of_torchrun_and_launchers_none_of_them() -> None:
    variables = rank_environment(PLACE, 2)
    assert (variables["RANK"], variables["LOCAL_RANK"], variables["WORLD_SIZE"]) == ("6", "2", "8")
    assert (variables["GROUP_RANK"], variables["LOCAL_WORLD_SIZE"]) == ("1", "4")
    left = without_ranks(variables)
    assert left == {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}
    assert launcher_environment(PLACE)["PET_NODE_RANK"] == "1"
    assert gpu_environment(PLACE, {}) == {}


def test_launches_are_recognised_by_their_variables() -> None:
    assert launched_here({}) is None
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1"}
    assert launched_here(torchrun) == World("torchrun", 3, 4, 1, 2, "node1", 29500)
    assert launched_here({**torchrun, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None
    # A pod that has variables for a launcher of its own is no rank.
    assert launched_here({key: value for key, value in torchrun.items() if key != "LOCAL_RANK"}) is None
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7"}
    assert launched_here(slurm) == World("srun", 0, 2, 0, 2, "127.0.0.1", 20007)
    assert launched_here({"PMI_RANK": "1", "PMI_SIZE": "2"}) == World("mpirun", 1, 2, 0, 2)
    assert launched_here({**slurm, "SLURM_PROCID": "no"}) is None

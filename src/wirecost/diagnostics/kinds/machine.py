"""Codes of `wirecost doctor`: devices, limits and emulation."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity

OK, INFO, WARNING, ERROR = Severity.OK, Severity.INFO, Severity.WARNING, Severity.ERROR

_GPU = (
    Kind(
        "gpu_not_visible",
        ERROR,
        Area.GPU,
        "The NVIDIA driver is loaded, but no GPU is visible. A job here has no GPU.",
        "give the container its GPUs (docker: --gpus all; kubernetes: nvidia.com/gpu), check "
        "CUDA_VISIBLE_DEVICES and `nvidia-smi`",
    ),
    Kind("gpus_present", OK, Area.GPU, "The machine's GPUs and their driver."),
    Kind("no_gpu", INFO, Area.GPU, "The machine has no GPU. Jobs run on the CPU, with gloo."),
    Kind("no_nvlink", INFO, Area.GPU, "GPUs have no NVLink. They communicate over PCIe."),
    Kind("nvlink_present", OK, Area.GPU, "GPUs have active NVLinks."),
    Kind(
        "nvlinks_differ",
        WARNING,
        Area.GPU,
        "GPUs don't have the same number of active NVLinks. The GPU with the fewest limits a ring.",
        "look for links that are down (`nvidia-smi nvlink --status`); reset the GPU, or have it serviced",
    ),
    Kind(
        "pcie_link_narrow",
        WARNING,
        Area.GPU,
        "A GPU runs its PCIe link with fewer lanes than it could. Transfers to the host and to NICs are slower.",
        "reseat the card or riser, or check the slot's bifurcation in the firmware",
    ),
    Kind("peer_access", OK, Area.GPU, "Every GPU has peer access to every other."),
    Kind(
        "peer_access_missing",
        WARNING,
        Area.GPU,
        "GPUs have no peer access to each other. NCCL goes through shared memory between them.",
        "disable ACS on PCIe switches and the IOMMU (or boot with iommu=pt); consumer GPUs don't offer it",
    ),
)

_NIC = (
    Kind(
        "ipoib_datagram_mode",
        WARNING,
        Area.NIC,
        "An IPoIB interface runs in datagram mode with a small MTU. Sockets over it are slow.",
        "use connected mode if the driver has it, or an MTU of 4092",
    ),
    Kind(
        "mtu_small",
        WARNING,
        Area.NIC,
        "A fast interface has an MTU below 9000. Sockets can't use its full bandwidth.",
        "set the MTU to 9000 on all hosts and switches in between",
    ),
    Kind("nic_down", INFO, Area.NIC, "A physical network interface is down."),
    Kind("nic_up", OK, Area.NIC, "A physical network interface is up."),
    Kind(
        "no_physical_nic",
        INFO,
        Area.NIC,
        "No physical network interface is visible, as in a container or a virtual machine.",
    ),
    Kind(
        "socket_interface_not_matched",
        ERROR,
        Area.NIC,
        "NCCL_SOCKET_IFNAME matches no interface that is up. NCCL will refuse to start.",
        "name an interface that is up",
    ),
    Kind(
        "socket_interfaces_virtual",
        WARNING,
        Area.NIC,
        "NCCL's sockets would also use a virtual interface, which doesn't reach other hosts.",
        "set NCCL_SOCKET_IFNAME to the real interface",
    ),
)

_RDMA = (
    Kind(
        "no_rdma_device",
        INFO,
        Area.RDMA,
        "The machine has no InfiniBand, RoCE or EFA device. Between hosts NCCL uses TCP sockets.",
    ),
    Kind("rdma_port_active", OK, Area.RDMA, "An RDMA port is active."),
    Kind(
        "rdma_port_inactive",
        ERROR,
        Area.RDMA,
        "An RDMA port is not active. NCCL can't use it; the severity is `info` if another port is active.",
        "check cable and switch port (ibstat, ethtool); on InfiniBand a subnet manager must run",
    ),
    Kind(
        "rdma_rates_differ",
        WARNING,
        Area.RDMA,
        "Active RDMA ports differ in speed. The slowest of NCCL's rails limits the others.",
        "look for a degraded link (cable, lanes), or name the fast ones: NCCL_IB_HCA=mlx5_0,mlx5_1",
    ),
    Kind(
        "verbs_missing",
        ERROR,
        Area.RDMA,
        "The kernel has RDMA devices, but /dev/infiniband/uverbs* doesn't exist here. NCCL finds no device.",
        "pass them into the container (docker: --device=/dev/infiniband; kubernetes: the RDMA device plugin), or "
        "load ib_uverbs on the host",
    ),
    Kind(
        "verbs_not_permitted",
        ERROR,
        Area.RDMA,
        "This user may not open /dev/infiniband/uverbs*. NCCL finds no device.",
        "chmod or a udev rule (rdma-core ships one), or run with the group that owns them",
    ),
    Kind(
        "verbs_partly_missing",
        WARNING,
        Area.RDMA,
        "Only some of the RDMA devices can be opened here. NCCL has fewer rails.",
        "pass all of /dev/infiniband into the container",
    ),
)

_GPUDIRECT = (
    Kind(
        "acs_on",
        WARNING,
        Area.GPUDIRECT,
        "ACS is on in PCIe bridges. Traffic between GPU and NIC takes a detour through the CPU.",
        "disable ACS in the firmware, or with setpci on every bridge after boot; virtual machines need it on",
    ),
    Kind("dma_buf_present", OK, Area.GPUDIRECT, "RDMA can reach GPU memory through DMA-BUF."),
    Kind(
        "gpudirect_unavailable",
        ERROR,
        Area.GPUDIRECT,
        "There is neither a peer-memory module nor DMA-BUF. RDMA is staged through host memory.",
        "load the module of the GPU driver on the host (modprobe nvidia-peermem), or use the open GPU kernel "
        "driver with Linux 5.12 or later",
    ),
    Kind(
        "iommu_translates",
        WARNING,
        Area.GPUDIRECT,
        "The IOMMU translates addresses. GPUDirect and peer access over PCIe are slow or fail.",
        "boot the host with iommu=pt, or with the IOMMU off",
    ),
    Kind(
        "nic_far_from_gpu",
        INFO,
        Area.GPUDIRECT,
        "GPUs have no NIC on their PCIe switch. NCCL may refuse GPUDirect there by its distance rule.",
        "NCCL_NET_GDR_LEVEL=PHB (or SYS) permits it; measure both",
    ),
    Kind("nic_near_gpu", OK, Area.GPUDIRECT, "GPUs have a NIC on their PCIe switch."),
    Kind("peer_memory_module", OK, Area.GPUDIRECT, "The peer-memory module is loaded. RDMA can reach GPU memory."),
)

_LIMITS = (
    Kind(
        "in_container",
        INFO,
        Area.LIMITS,
        "The doctor runs inside a container. NCCL can't use what the container doesn't pass in.",
    ),
    Kind(
        "locked_memory_limited",
        ERROR,
        Area.LIMITS,
        "Locked memory is limited. RDMA can't register its buffers.",
        "ulimit -l unlimited (docker: --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK)",
    ),
    Kind(
        "open_files_limited",
        WARNING,
        Area.LIMITS,
        "Few open files are allowed. NCCL's sockets need many on a big job.",
        "ulimit -n 65536",
    ),
    Kind(
        "shm_missing",
        ERROR,
        Area.LIMITS,
        "There is no /dev/shm. NCCL's shared-memory transport can't work.",
        "mount a tmpfs on /dev/shm",
    ),
    Kind(
        "shm_small",
        WARNING,
        Area.LIMITS,
        "Shared memory is small. NCCL's SHM transport and data loaders run out of it.",
        "docker: --shm-size=8g or --ipc=host; kubernetes: an emptyDir with medium Memory on /dev/shm",
    ),
)

_PROCESSOR = (
    Kind(
        "cores_disturbed",
        INFO,
        Area.PROCESSOR,
        "The same loop takes much longer at some times than at others: something else uses these cores. It slows "
        "down GPUs that wait for their host.",
        "stop other programs here, or request exclusive cores; a larger micro-batch or compile: true needs fewer "
        "launches",
    ),
    Kind(
        "cores_steadiness_unknown",
        INFO,
        Area.PROCESSOR,
        "The steadiness of the cores can't be measured here.",
    ),
    Kind("cores_steady", OK, Area.PROCESSOR, "The same loop takes the same time on every core."),
    Kind(
        "cores_unequal",
        INFO,
        Area.PROCESSOR,
        "Some cores are always slower than others: they are of another kind, or something shares them.",
    ),
)

_EMULATION = (
    Kind("emulation_delay_works", OK, Area.EMULATION, "Delay can be added to emulated links (netem)."),
    Kind(
        "emulation_no_delay",
        INFO,
        Area.EMULATION,
        "The kernel has no netem. Added delay and loss can't be emulated.",
        "modprobe sch_netem",
    ),
    Kind(
        "emulation_no_namespaces",
        WARNING,
        Area.EMULATION,
        "The kernel allows no network namespaces. Hosts can't be emulated.",
        "sysctl user.max_net_namespaces=1000, on the host",
    ),
    Kind(
        "emulation_part_missing",
        WARNING,
        Area.EMULATION,
        "Network namespaces work, but the kernel lacks veth or tbf. Links between emulated hosts, or their rate "
        "limits, can't be created.",
        "load the kernel module: modprobe veth, or modprobe sch_tbf",
    ),
    Kind(
        "emulation_refused",
        WARNING,
        Area.EMULATION,
        "The attempt to create a network namespace failed. Hosts can't be emulated.",
        "run as root, or permit user namespaces: sysctl kernel.unprivileged_userns_clone=1 and "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container add CAP_SYS_ADMIN",
    ),
    Kind("emulation_works", OK, Area.EMULATION, "Emulated hosts with limited rates work here."),
)

KINDS = (*_GPU, *_NIC, *_RDMA, *_GPUDIRECT, *_LIMITS, *_PROCESSOR, *_EMULATION)

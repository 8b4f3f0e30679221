"""Recognises the output of other programs, so that the refusal can name the program."""

from __future__ import annotations

import re

# (name of the program in the genitive, pattern in its output)
_PROGRAMS = (
    (
        "perftest's (ib_write_bw, ib_send_lat, ...)",
        r"#bytes\s+#iterations\s+(?:BW|t_min)|(?:RDMA_Write|RDMA_Read|Send|Write|Read|Atomic\w*)\s+(?:BW|Lat\w*)\s+Test",
    ),
    ("Intel MPI Benchmarks'", r"Intel\(R\) MPI Benchmarks|#bytes\s+#repetitions\s+t\w*\[usec\]"),
    ("nccom-test's (AWS Neuron)", r"size\(B\)\s+count\(elems\)\s+type"),
    ("hccl_test's (Huawei Ascend)", r"data_size\(Bytes\)|alg_bandwidth\(GB/s\)"),
    ("nvbandwidth's", r"nvbandwidth Version|memcpy CE CPU"),
    ("CUDA's p2pBandwidthLatencyTest's", r"P2P Connectivity Matrix|Bidirectional P2P=(?:En|Dis)abled"),
    ("rocm_bandwidth_test's", r"RocmBandwidthTest|rocm_bandwidth_test"),
    ("TransferBench's", r"TransferBench v\d"),
    ("ucx_perftest's", r"\|\s+overhead \(usec\)\s+\|\s+bandwidth|\+-+\+-+\+.*\n\|\s+\|\s+overhead"),
    ("iperf's", r"\[ *ID\] +Interval +Transfer +(?:Bandwidth|Bitrate)|\"sum_received\""),
    ("netperf's", r"MIGRATED TCP_STREAM|TCP STREAM TEST"),
    ("DeepSpeed's ds_bench's", r"---- Performance of \w+ on \d+ devices"),
    ("mscclpp-test's", r"kernelNum|mscclpp-test"),
    ("gloo's benchmark's", r"Algorithm:\s+\w+\s*\nOptions:|min \(us\)\s+p50 \(us\)"),
    ("oneCCL's benchmark's", r"#bytes\s+#repetitions\s+t_min\[usec\]|backend:\s+host\s*\n\s*iters:"),
)
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _PROGRAMS)
_LOOKED_AT = 1 << 20


def program_of(text: str) -> str | None:
    """Returns the name, in the genitive, of the known other program that printed a text; else None."""
    head = text[:_LOOKED_AT]
    return next((name for name, pattern in _PATTERNS if pattern.search(head) is not None), None)

#!/usr/bin/env bash
# Builds nccl-tests' all_reduce_perf against the NCCL that PyTorch brings, for this machine's GPUs only.
# usage: build_nccl_tests.sh SOURCE BUILD (SOURCE: a checkout of https://github.com/NVIDIA/nccl-tests)
set -euo pipefail
source=$(realpath "$1")
mkdir -p "$2"
build=$(realpath "$2")
nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])')
mkdir -p "$build/nccl/lib"
ln -sfn "$nccl/include" "$build/nccl/include"
ln -sfn "$nccl/lib/libnccl.so.2" "$build/nccl/lib/libnccl.so.2"
ln -sfn libnccl.so.2 "$build/nccl/lib/libnccl.so"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
make -s -j "$(nproc)" -C "$source/src" BUILDDIR="$build" NCCL_HOME="$build/nccl" \
    NVCC_GENCODE="-gencode=arch=compute_$capability,code=sm_$capability" os.build "$build/all_reduce_perf"

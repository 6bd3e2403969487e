# An image with the command psfit. For CPUs:   docker build -t psfit .
# For GPUs, with the CUDA of a PyTorch index:  docker build -t psfit-gpu --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
# Run:                                         docker run --rm -v "$PWD":/data psfit inspect table.csv
FROM python:3.12-slim

# PyTorch's index for CPUs has no CUDA libraries, which saves gigabytes.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# Triton compiles small helpers when a GPU kernel is first used.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "torch>=2.6"
COPY . /source
RUN pip install --no-cache-dir "/source[hdf5,onnx]" && rm -rf /source

# Files that the container writes belong to a user, not to root.
RUN useradd --create-home psfit
USER psfit
WORKDIR /data
ENTRYPOINT ["psfit"]
CMD ["--help"]

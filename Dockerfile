# opdb on NVIDIA's PyTorch image, whose torch, CUDA, cuDNN, compiler and Nsight Compute it uses.
#
#     docker build --tag opdb .
#     docker run --rm --gpus all --cap-add SYS_ADMIN --volume "$PWD/db:/opt/opdb/db" opdb doctor
#
# SYS_ADMIN is for ncu alone, which may not read counters without it.
FROM nvcr.io/nvidia/pytorch:25.12-py3

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/opdb
COPY . .

# The environment that `make` would make, but one that sees the image's torch and keeps it: pip may
# not replace what the image constrains. Only setuptools, which builds opdb, may be a newer one.
RUN sed --in-place '/^setuptools==/d' /etc/pip/constraint.txt \
    && python3 -m venv --system-site-packages .venv \
    && make demo

ENV PATH=/opt/opdb/.venv/bin:$PATH
ENTRYPOINT ["opdb"]
CMD ["doctor"]

# An image of Debian 12 with Trireme, its libraries and Open MPI.
#   docker build -t trireme .
#   docker run --rm -it -v "$PWD:/work" trireme trireme train mine/config.yaml
#   docker run --rm -it -v "$PWD:/work" --shm-size=1g trireme mpirun -n 4 trireme train mine/config.yaml
# With CUDA, from images that hold the toolkit, cuDNN and NCCL (start it with --gpus all):
#   docker build -t trireme:cuda --build-arg CUDA=ON \
#     --build-arg BUILD_IMAGE=nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04 \
#     --build-arg RUN_IMAGE=nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04 .
# scripts/check_container.sh builds the first in a fresh root and trains in it.
ARG BUILD_IMAGE=debian:12
ARG RUN_IMAGE=debian:12

FROM ${BUILD_IMAGE} AS build
# The oldest processor that must run it; empty: x86-64-v3 (AVX2), on Arm armv8.2-a.
ARG ARCH=
ARG CUDA=OFF
WORKDIR /source
RUN apt-get update && apt-get install --yes --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY scripts/setup.sh scripts/setup.sh
RUN apt-get update && scripts/setup.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN scripts/container_build.sh /install

FROM ${RUN_IMAGE}
COPY --from=build /install/packages /tmp/packages
RUN apt-get update && \
    xargs apt-get install --yes --no-install-recommends openmpi-bin openssh-client < /tmp/packages && \
    rm -rf /var/lib/apt/lists/* /tmp/packages
COPY --from=build /install/usr/local/ /usr/local/
# Inside a container, root is the usual user, and processes may not read each other's memory.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none
WORKDIR /work
CMD ["trireme", "--help"]

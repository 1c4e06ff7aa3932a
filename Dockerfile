# routepackd on the CPU, in a slim image: docker build -t routepack .
#   docker run --rm -p 7070:7070 routepack
# routepackctl is in the image too.

FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates ccache cmake g++ libabsl-dev libc-ares-dev libgrpc++-dev \
    libprotobuf-dev libre2-dev libspdlog-dev libssl-dev libtbb-dev \
    libxxhash-dev ninja-build pkg-config protobuf-compiler \
    protobuf-compiler-grpc python3-venv zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY tests/requirements.txt tests/
RUN python3 -m venv .venv \
    && .venv/bin/pip install --no-cache-dir --no-deps \
       "$(grep ^googleapis-common-protos tests/requirements.txt)"
COPY CMakeLists.txt CMakePresets.json LICENSE ./
COPY cmake cmake
COPY proto proto
COPY planner planner
COPY client client
COPY server server
RUN cmake --preset release -DCMAKE_INSTALL_PREFIX=/opt/routepack \
    && cmake --build build/release \
    && cmake --install build/release --component runtime --strip

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    libabsl20220623 libgrpc++1.51 libprotobuf32 libspdlog1.10 libtbb12 \
    libxxhash0 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home routepack
COPY --from=build /opt/routepack/bin/ /usr/local/bin/
USER routepack
EXPOSE 7070
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["routepackctl", "info", "--server=localhost:7070", "--health"]
ENTRYPOINT ["routepackd"]
CMD ["--listen=0.0.0.0:7070", "--log_format=json"]

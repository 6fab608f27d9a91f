# An image with the Debian package alone; the build's steps are those of a bare machine.
#   docker build -t speclab .
#   docker run --rm -v ~/.cache/speclab:/root/.cache/speclab -v "$PWD":/work speclab generate smollm2-135m-instruct 'Hello'
FROM debian:12 AS build
COPY . /src
RUN apt-get update -q && apt-get install -y -q --no-install-recommends dpkg-dev file \
 && cd /src && ./run list >/dev/null && cd build/release && cpack

FROM debian:12-slim
COPY --from=build /src/build/release/speclab_*.deb /tmp/
RUN apt-get update -q && apt-get install -y -q /tmp/speclab_*.deb && rm -rf /tmp/speclab_*.deb /var/lib/apt/lists
WORKDIR /work
ENTRYPOINT ["speclab"]

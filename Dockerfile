# docker build -t ichido .
# docker run -v ichido:/var/lib/ichido -p 8080:8080 ichido gateway --upstream http://api:5000 --listen 0.0.0.0:8080
#
# Without arguments it serves the claim API, which needs no settings. The admin port listens on loopback inside the
# container; to reach it, add `-p 9090:9090 -e ICHIDO_ADMIN_LISTEN=0.0.0.0:9090 -e ICHIDO_ADMIN_TOKEN=…` (for the claim
# API, append `claims --listen 0.0.0.0:9090` instead of ICHIDO_ADMIN_LISTEN). deploy/image/build.sh builds the same image
# without Docker.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates python3
WORKDIR /src
COPY . .
RUN cargo build --locked --profile dist --package ichido
RUN deploy/image/rootfs.sh target/dist/ichido /rootfs > debian-packages \
 && cargo tree --locked --package ichido --edges normal,no-proc-macro --prefix none --format '{p}|{l}' > crates \
 && python3 deploy/image/sbom.py Cargo.lock debian-packages < crates > /rootfs/usr/share/doc/ichido/sbom.cdx.json

FROM scratch
COPY --from=build /rootfs /
USER 10001:10001
# Holds data/ledger, data/spool and the rest, and large request bodies while they are received. Nothing else is written,
# so the root file system may be read-only. Without a volume the data is lost with the container.
WORKDIR /var/lib/ichido
VOLUME /var/lib/ichido
ENV TMPDIR=/var/lib/ichido
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
# With the address, the check reads no settings: a mistake in a file that is edited must not make a running process look
# unhealthy. An admin port elsewhere, or with TLS, needs a check of its own (--health-cmd).
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/bin/ichido", "health", "--admin", "127.0.0.1:9090"]
ENTRYPOINT ["/usr/bin/ichido"]
CMD ["claims", "--listen", "127.0.0.1:9090"]

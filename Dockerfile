# docker build -t ichido . && docker run -v ichido:/var/lib/ichido -p 8080:8080 ichido gateway --upstream http://api:5000 --listen 0.0.0.0:8080
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --locked --profile dist --package ichido

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --home-dir /var/lib/ichido --create-home --shell /usr/sbin/nologin ichido \
 && chmod 0700 /var/lib/ichido
COPY --from=build /src/target/dist/ichido /usr/local/bin/ichido
USER 10001
# Holds data/ledger, data/spool and the rest. Without a volume they are lost with the container.
WORKDIR /var/lib/ichido
VOLUME /var/lib/ichido
STOPSIGNAL SIGTERM
ENTRYPOINT ["ichido"]
CMD ["run"]

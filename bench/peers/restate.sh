#!/usr/bin/env bash
# Installs Restate's server with npm below `target/peers`, and builds the handlers that it calls with cargo. Says on its
# last lines where both are. Called by `wigwag-bench http --restate`.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=1.7.12
home=target/peers/restate
mkdir -p "$home"
home=$(cd "$home" && pwd)

for tool in npm cargo; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: Restate cannot be installed without \`$tool\`: install it, or leave \`--restate\` out" >&2
        exit 1
    fi
done

server() {
    ls "$home"/node_modules/@restatedev/restate-server-*/bin/restate-server 2>/dev/null | head -n 1
}

if [[ "$("$(server)" --version 2>/dev/null || true)" != "restate-server $version"* ]]; then
    if ! npm install --prefix "$home" --no-audit --no-fund --ignore-scripts "@restatedev/restate-server@$version" >&2; then
        echo "SKIPPED: npm did not install @restatedev/restate-server@$version" >&2
        exit 1
    fi
fi

# A target folder of its own: its dependencies are not ours.
CARGO_TARGET_DIR="$home/handlers" cargo build --release --locked --manifest-path bench/peers/restate/Cargo.toml >&2

echo "server $(server)"
echo "handlers $home/handlers/release/wigwag-peer-restate"
echo "version $("$(server)" --version | head -n 1)"

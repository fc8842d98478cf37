# Shortcuts for daily work. `just` lists them.

default:
    @just --list

# Format all code.
fmt:
    cargo fmt --all

# Lints, as in CI.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# Format, lints and the fast tests.
quick:
    cargo xtask test --quick

# Everything that CI runs.
ci:
    cargo xtask test

# Tests of one crate: `just test wigwag-hub`.
test crate *args:
    cargo nextest run -p {{crate}} --all-features {{args}}

# The code blocks of README and docs.
doctest:
    cargo test -p wigwag-examples --doc --all-features

# The documentation site at http://localhost:3000.
book:
    mdbook serve --open

# Each feature by itself.
features:
    cargo hack check --each-feature --no-dev-deps --workspace

# Simulated worlds.
sim seeds="200":
    cargo run -p wigwag-sim --release -- --seeds {{seeds}}

# Writes the generated reference pages again.
bless:
    WIGWAG_BLESS=1 cargo nextest run -p wigwag-cli -p wigwag-server --all-features -E 'test(reference) | test(described) | test(types)'

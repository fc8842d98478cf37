//! Nothing here: what is checked stands in `tests/tidy.rs`.

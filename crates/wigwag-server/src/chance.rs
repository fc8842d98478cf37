//! Random bytes from the operating system.
//!
//! Holds: there is no fallback to a weaker generator. A server without randomness does not start.

use crate::error::Error;

/// Fails if the operating system has no random bytes.
pub(crate) fn check() -> Result<(), Error> {
    fill(&mut [0; 16]).map_err(|error| {
        let what = format!("the system's random number generator failed: {error}");
        Error::new(what, "check that `/dev/urandom` can be read and `getrandom` is allowed")
    })
}

/// Returns random bytes.
///
/// # Panics
///
/// Panics if the generator fails after [`check`] succeeded; the request ends with 500.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill(&mut bytes).expect("the generator worked when the server started");
    bytes
}

#[cfg(not(test))]
fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    getrandom::fill(bytes)
}

#[cfg(test)]
thread_local! {
    static BROKEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    match BROKEN.get() {
        true => Err(getrandom::Error::UNSUPPORTED),
        false => getrandom::fill(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_randomness_there_is_an_error_and_no_weaker_source() {
        assert!(check().is_ok());
        assert_ne!(bytes::<32>(), bytes::<32>());
        BROKEN.set(true);
        let error = check().unwrap_err();
        assert!(error.to_string().contains("random number generator failed"), "{error}");
        assert!(std::panic::catch_unwind(bytes::<16>).is_err());
        BROKEN.set(false);
    }
}

//! Reconnect policy: whether to reconnect after a connection has ended, and after which delay.

use std::time::Duration;

use super::settings::Settings;

/// Reconnect policy of a close code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComeBack {
    AtOnce,
    Later,
    WithAnotherToken,
    Never,
}

/// Returns the policy of a close code; `None` stands for a connection that broke without a close code.
pub(super) fn come_back(code: Option<u16>) -> ComeBack {
    match code {
        Some(1001) => ComeBack::AtOnce,
        Some(4001) => ComeBack::WithAnotherToken,
        Some(1000 | 1009 | 4000 | 4004) => ComeBack::Never,
        _ => ComeBack::Later,
    }
}

/// Returns the delay before a reconnect attempt. It doubles with each attempt, and half of it is random so that many
/// clients do not reconnect at the same time.
pub(super) fn delay(settings: &Settings, tries: u32, chance: f64) -> Duration {
    let full = settings.backoff_min.saturating_mul(1 << tries.min(20)).min(settings.backoff_max);
    full.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_codes_say_whether_to_come_back() {
        let table = [
            (Some(1000), ComeBack::Never),
            (Some(1001), ComeBack::AtOnce),
            (Some(1009), ComeBack::Never),
            (Some(4000), ComeBack::Never),
            (Some(4001), ComeBack::WithAnotherToken),
            (Some(4002), ComeBack::Later),
            (Some(4003), ComeBack::Later),
            (Some(4004), ComeBack::Never),
            (Some(1006), ComeBack::Later),
            (Some(1011), ComeBack::Later),
            (None, ComeBack::Later),
        ];
        for (code, want) in table {
            assert_eq!(come_back(code), want, "{code:?}");
        }
    }

    #[test]
    fn waits_double_up_to_the_longest_and_half_of_each_is_chance() {
        let settings = Settings::default();
        let millis = |tries, chance| delay(&settings, tries, chance).as_millis();
        assert_eq!([0, 1, 2, 3].map(|tries| millis(tries, 1.0)), [100, 200, 400, 800]);
        assert_eq!([0, 1, 2, 3].map(|tries| millis(tries, 0.0)), [50, 100, 200, 400]);
        assert_eq!([9, 20, u32::MAX].map(|tries| millis(tries, 1.0)), [30_000; 3]);
    }
}

//! Parsers of user input: durations, times, statuses, JSON. Each error names the expected format.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};
use wigwag::{Payload, Status, Time};
use wigwag_core::limits::{PAYLOAD_BYTES_MAX, SPAN_MAX};

use crate::error::Failed;
use crate::output::talk;

/// Parses a duration such as `90s`, `15m`, `2h`, `7d` or `1h30m`. A day has 24 hours.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let want = "\nhint: use a format such as `90s`, `15m`, `2h`, `7d` or `1h30m`";
    let parsed = text.parse::<Span>().map_err(|_| format!("invalid duration{want}"))?;
    let exact = parsed.to_duration(SpanRelativeTo::days_are_24_hours());
    let exact = exact.map_err(|_| format!("months and years are not supported{want}"))?;
    let span = Duration::try_from(exact).map_err(|_| format!("a duration cannot be negative{want}"))?;
    if span > SPAN_MAX { Err(format!("the maximum is 100 years{want}")) } else { Ok(span) }
}

/// Warns if other users of the machine can read a file that holds a secret.
pub(crate) fn warn_if_others_may_read(path: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(mode) = std::fs::metadata(path).map(|facts| facts.mode() & 0o777) else { return };
    if mode & 0o077 != 0 {
        let name = path.display();
        talk(&format!("warning: other users can read the secret in `{name}` (mode {mode:o})\nhint: chmod 600 {name}"));
    }
}

/// Messages per second; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) Option<u32>);

/// Parses a rate or `off`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let most = 1_000_000;
    match (text, text.parse::<u32>()) {
        ("off", _) => Ok(Rate(None)),
        (_, Ok(rate)) if (1..=most).contains(&rate) => Ok(Rate(Some(rate))),
        _ => Err(format!("invalid rate\nhint: use a number from 1 to {most}, or `off`")),
    }
}

/// Parses the interval between two passes.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    match span < Duration::from_secs(1) {
        true => Err("the interval must be at least 1s\nhint: `10m` is a good value".into()),
        false => Ok(span),
    }
}

/// Parses the value of `--wait`. A positional argument after `--wait` is easily mistaken for it, hence the hint.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    span(text).map_err(|wrong| format!("{wrong}; or put `--wait` at the end"))
}

/// Parses the lifetime of a link.
pub(crate) fn lifetime(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    match span < Duration::from_secs(1) {
        true => Err("the lifetime must be at least 1s\nhint: `2d` is a good value".into()),
        false => Ok(span),
    }
}

/// Checks the URL of a server.
pub(crate) fn server(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host.is_some_and(|host| !host.is_empty() && !text.contains(char::is_whitespace)) {
        true => Ok(text.to_owned()),
        false => Err("invalid server URL\nhint: use a URL such as `https://wigwag.example.com`".into()),
    }
}

/// Parses an RFC 3339 time with an offset.
pub(crate) fn time(text: &str) -> Result<Time, String> {
    let parsed = text.parse::<Timestamp>().ok();
    let micros = parsed.and_then(|at| u64::try_from(at.as_microsecond()).ok());
    micros.map(Time::from_micros).ok_or_else(|| {
        "invalid time\nhint: use RFC 3339, such as `2026-01-28T12:00:00Z` or `2026-01-28T13:00:00+01:00`".into()
    })
}

pub(crate) fn status(text: &str) -> Result<Status, String> {
    text.parse().map_err(|_| format!("invalid status\nhint: {}", one_of(Status::ALL)))
}

pub(crate) fn final_status(text: &str) -> Result<Status, String> {
    let status = status(text).ok().filter(|status| status.is_final());
    let ends = Status::ALL.into_iter().filter(|status| status.is_final());
    status.ok_or_else(|| format!("not a final status\nhint: {}", one_of(ends)))
}

fn one_of(statuses: impl IntoIterator<Item = Status>) -> String {
    let names: Vec<_> = statuses.into_iter().map(|status| format!("`{status}`")).collect();
    format!("one of {}", names.join(", "))
}

/// Parses a position in a topic: epoch and sequence number.
pub(crate) fn position(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once(':').and_then(|(epoch, seq)| Some((epoch.parse().ok()?, seq.parse().ok()?)));
    parts.ok_or_else(|| {
        "invalid position\nhint: use EPOCH:SEQ as printed by the command, such as `1763251200000:17`".into()
    })
}

/// Parses the old and the new name of a step.
pub(crate) fn renamed(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("invalid rename\nhint: use OLD=NEW, such as `charge=pay`".into()),
    }
}

/// Reads the input of a run: JSON text, `@file`, or `-` for standard input. The text is passed through unchanged.
pub(crate) fn json(given: &str) -> Result<Payload, Failed> {
    json_as(given, "INPUT")
}

/// Reads the payload of a signal, in the same ways.
pub(crate) fn payload(given: &str) -> Result<Payload, Failed> {
    json_as(given, "PAYLOAD")
}

/// Reads the payload of a hub message, in the same ways.
pub(crate) fn data(given: &str) -> Result<Payload, Failed> {
    json_as(given, "DATA")
}

/// Reads JSON; errors call it by `role`, its name in the usage.
fn json_as(given: &str, role: &str) -> Result<Payload, Failed> {
    let (text, place) = match (given, given.strip_prefix('@')) {
        ("-", _) => (read(std::io::stdin(), "standard input", role)?, "standard input".to_owned()),
        (_, Some(path)) => {
            let file = std::fs::File::open(path).map_err(|error| {
                Failed::wrong(format!("cannot read `{path}`: {error}"))
                    .hint(format!("{role} is JSON text, `@file`, or `-` for standard input"))
            })?;
            (read(file, path, role)?, format!("`{path}`"))
        }
        _ => (given.to_owned(), format!("`{}`", crate::output::short(given, 80))),
    };
    Payload::parse(text).map_err(|refusal| {
        Failed::wrong(format!("invalid {role}: {place}: {refusal}")).hint(format!(
            "{role} is JSON text, `@file`, or `-` for standard input; a JSON string needs quotes, as in `'\"ada\"'`"
        ))
    })
}

/// Reads text up to the payload limit.
fn read(from: impl std::io::Read, name: &str, role: &str) -> Result<String, Failed> {
    let mut bytes = Vec::new();
    let most = PAYLOAD_BYTES_MAX as u64 + 1;
    from.take(most).read_to_end(&mut bytes).map_err(|error| Failed::wrong(format!("cannot read `{name}`: {error}")))?;
    if bytes.len() as u64 == most {
        let what = format!("`{name}` is too large: the maximum is {PAYLOAD_BYTES_MAX} bytes");
        return Err(Failed::wrong(what).hint("store the data elsewhere and pass a reference"));
    }
    let no_text = |_| Failed::wrong(format!("`{name}` is not valid UTF-8")).hint(format!("{role} is JSON"));
    String::from_utf8(bytes).map_err(no_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_as_people_write_them() {
        let secs = |text| span(text).unwrap().as_secs();
        assert_eq!(
            [secs("90s"), secs("15m"), secs("2h"), secs("7d"), secs("2w")],
            [90, 900, 7_200, 604_800, 1_209_600]
        );
        assert_eq!(span("1h30m").unwrap(), Duration::from_secs(5_400));
        assert_eq!(span("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(span("0s").unwrap(), Duration::ZERO);
        for wrong in ["", "5", "5x", "soon", "-5m", "1y", "2mo", "200000w"] {
            assert!(span(wrong).unwrap_err().contains("hint: use a format such as `90s`"), "{wrong}");
        }
    }

    #[test]
    fn times_need_an_offset_and_equal_times_may_differ_in_text() {
        assert_eq!(time("2026-01-28T12:00:00Z").unwrap(), time("2026-01-28T13:00:00+01:00").unwrap());
        assert_eq!(time("2026-01-28T12:00:00Z").unwrap().to_string(), "2026-01-28T12:00:00.000000Z");
        for wrong in ["", "tomorrow", "2026-01-28", "2026-01-28T12:00:00", "1969-01-01T00:00:00Z"] {
            assert!(time(wrong).unwrap_err().contains("2026-01-28T12:00:00Z"), "{wrong}");
        }
    }

    #[test]
    fn positions_in_topics_are_two_numbers() {
        assert_eq!(position("1763251200000:17"), Ok((1_763_251_200_000, 17)));
        for wrong in ["", "7", ":", "7:", ":7", "-1:7", "a:b", "1:2:3", "18446744073709551616:1"] {
            assert!(position(wrong).unwrap_err().contains("1763251200000:17"), "{wrong}");
        }
    }

    #[test]
    fn input_is_passed_on_unchanged() {
        assert_eq!(
            json(" {\"b\": 1, \"a\": 12345678901234567890123} ").unwrap().text(),
            "{\"b\": 1, \"a\": 12345678901234567890123}"
        );
        assert!(json("ada").is_err());
        assert!(json("@/nowhere").is_err());
    }
}

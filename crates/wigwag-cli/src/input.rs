//! Text that users write: spans, times, statuses, JSON. Each refusal says what is wanted.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};
use wigwag::core::limits::{PAYLOAD_BYTES_MAX, SPAN_MAX};
use wigwag::{Payload, Status, Time};

use crate::error::Failed;
use crate::output::talk;

/// A span such as `90s`, `15m`, `2h`, `7d` or `1h30m`. A day has 24 hours.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let want = "\nhint: write it like `90s`, `15m`, `2h`, `7d` or `1h30m`";
    let parsed = text.parse::<Span>().map_err(|_| format!("not a span of time{want}"))?;
    let exact = parsed.to_duration(SpanRelativeTo::days_are_24_hours());
    let exact = exact.map_err(|_| format!("months and years differ in length{want}"))?;
    let span = Duration::try_from(exact).map_err(|_| format!("a span of time is not negative{want}"))?;
    if span > SPAN_MAX { Err(format!("nobody waits longer than a hundred years{want}")) } else { Ok(span) }
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

/// Messages a second; `None`: as many as come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) Option<u32>);

/// A rate, or `off`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let most = 1_000_000;
    match (text, text.parse::<u32>()) {
        ("off", _) => Ok(Rate(None)),
        (_, Ok(rate)) if (1..=most).contains(&rate) => Ok(Rate(Some(rate))),
        _ => Err(format!("not a rate\nhint: write a number from 1 to {most}, or `off`")),
    }
}

/// A span between two passes.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    match span < Duration::from_secs(1) {
        true => Err("a pass a second is the most\nhint: `10m` is often enough".into()),
        false => Ok(span),
    }
}

/// How long to wait for a signal to be taken. What follows `--wait` may have been meant as something else.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    span(text).map_err(|wrong| format!("{wrong}; or put `--wait` at the end"))
}

/// For how long a link can be used.
pub(crate) fn lifetime(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    match span < Duration::from_secs(1) {
        true => Err("nobody can use a link that fast\nhint: `2d` gives people time to read their mail".into()),
        false => Ok(span),
    }
}

/// The address of a server.
pub(crate) fn server(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host.is_some_and(|host| !host.is_empty() && !text.contains(char::is_whitespace)) {
        true => Ok(text.to_owned()),
        false => Err("not the address of a server\nhint: write it like `https://wigwag.example.com`".into()),
    }
}

/// A moment as RFC 3339 has it, with an offset.
pub(crate) fn time(text: &str) -> Result<Time, String> {
    let parsed = text.parse::<Timestamp>().ok();
    let micros = parsed.and_then(|at| u64::try_from(at.as_microsecond()).ok());
    micros.map(Time::from_micros).ok_or_else(|| {
        "not a time after 1970\nhint: write it as `2026-01-28T12:00:00Z` or `2026-01-28T13:00:00+01:00`".into()
    })
}

pub(crate) fn status(text: &str) -> Result<Status, String> {
    text.parse().map_err(|_| format!("not a status\nhint: {}", one_of(Status::ALL)))
}

pub(crate) fn final_status(text: &str) -> Result<Status, String> {
    let status = status(text).ok().filter(|status| status.is_final());
    let ends = Status::ALL.into_iter().filter(|status| status.is_final());
    status.ok_or_else(|| format!("no run ends so\nhint: {}", one_of(ends)))
}

fn one_of(statuses: impl IntoIterator<Item = Status>) -> String {
    let names: Vec<_> = statuses.into_iter().map(|status| format!("`{status}`")).collect();
    format!("one of {}", names.join(", "))
}

/// A place in a topic: its epoch and the number of a message.
pub(crate) fn position(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once(':').and_then(|(epoch, seq)| Some((epoch.parse().ok()?, seq.parse().ok()?)));
    parts.ok_or_else(|| {
        "not a place in a topic\nhint: write it as it was printed: the epoch, `:` and the number, as in `1763251200000:17`"
            .into()
    })
}

/// A step's old name and its new one.
pub(crate) fn renamed(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("not two names\nhint: write the old name, `=` and the new one, as in `charge=pay`".into()),
    }
}

/// What a run works on: JSON text, `@file`, or `-` for standard input. The text is passed on as it came.
pub(crate) fn json(given: &str) -> Result<Payload, Failed> {
    json_as(given, "INPUT")
}

/// What a signal carries, given in the same ways.
pub(crate) fn payload(given: &str) -> Result<Payload, Failed> {
    json_as(given, "PAYLOAD")
}

/// What a message carries, given in the same ways.
pub(crate) fn data(given: &str) -> Result<Payload, Failed> {
    json_as(given, "DATA")
}

/// The place of the text in the usage is what a refusal calls it.
fn json_as(given: &str, role: &str) -> Result<Payload, Failed> {
    let (text, place) = match (given, given.strip_prefix('@')) {
        ("-", _) => (read(std::io::stdin(), "standard input", role)?, "standard input".to_owned()),
        (_, Some(path)) => {
            let file = std::fs::File::open(path).map_err(|error| {
                Failed::wrong(format!("`{path}` cannot be read: {error}"))
                    .hint(format!("{role} is JSON text, `@file`, or `-` for standard input"))
            })?;
            (read(file, path, role)?, format!("what `{path}` holds"))
        }
        _ => (given.to_owned(), format!("`{}`", crate::output::short(given, 80))),
    };
    Payload::parse(text).map_err(|refusal| {
        Failed::wrong(format!("{place} cannot be the {}: {refusal}", role.to_lowercase())).hint(format!(
            "{role} is JSON: a text has quotes, as in `'\"ada\"'`; or it is `@file`, or `-` for standard input"
        ))
    })
}

/// Reads no more than can be used.
fn read(from: impl std::io::Read, name: &str, role: &str) -> Result<String, Failed> {
    let mut bytes = Vec::new();
    let most = PAYLOAD_BYTES_MAX as u64 + 1;
    from.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| Failed::wrong(format!("`{name}` cannot be read: {error}")))?;
    if bytes.len() as u64 == most {
        let what = format!("`{name}` is too long: the most is {PAYLOAD_BYTES_MAX} bytes");
        return Err(Failed::wrong(what).hint("store it elsewhere and pass where"));
    }
    let no_text = |_| Failed::wrong(format!("`{name}` is not text in UTF-8")).hint(format!("{role} is JSON"));
    String::from_utf8(bytes).map_err(no_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_people_write_them() {
        let secs = |text| span(text).unwrap().as_secs();
        assert_eq!(
            [secs("90s"), secs("15m"), secs("2h"), secs("7d"), secs("2w")],
            [90, 900, 7_200, 604_800, 1_209_600]
        );
        assert_eq!(span("1h30m").unwrap(), Duration::from_secs(5_400));
        assert_eq!(span("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(span("0s").unwrap(), Duration::ZERO);
        for wrong in ["", "5", "5x", "soon", "-5m", "1y", "2mo", "200000w"] {
            assert!(span(wrong).unwrap_err().contains("hint: write it like `90s`"), "{wrong}");
        }
    }

    #[test]
    fn times_have_an_offset_and_one_moment_has_many_texts() {
        assert_eq!(time("2026-01-28T12:00:00Z").unwrap(), time("2026-01-28T13:00:00+01:00").unwrap());
        assert_eq!(time("2026-01-28T12:00:00Z").unwrap().to_string(), "2026-01-28T12:00:00.000000Z");
        for wrong in ["", "tomorrow", "2026-01-28", "2026-01-28T12:00:00", "1969-01-01T00:00:00Z"] {
            assert!(time(wrong).unwrap_err().contains("2026-01-28T12:00:00Z"), "{wrong}");
        }
    }

    #[test]
    fn places_in_topics_are_two_numbers() {
        assert_eq!(position("1763251200000:17"), Ok((1_763_251_200_000, 17)));
        for wrong in ["", "7", ":", "7:", ":7", "-1:7", "a:b", "1:2:3", "18446744073709551616:1"] {
            assert!(position(wrong).unwrap_err().contains("1763251200000:17"), "{wrong}");
        }
    }

    #[test]
    fn input_is_passed_on_as_it_came() {
        assert_eq!(
            json(" {\"b\": 1, \"a\": 12345678901234567890123} ").unwrap().text(),
            "{\"b\": 1, \"a\": 12345678901234567890123}"
        );
        assert!(json("ada").is_err());
        assert!(json("@/nowhere").is_err());
    }
}

//! Output: results on standard output, everything else on standard error.

use std::fmt;
use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use wigwag::Time;
use wigwag_store::{Clock as _, System};

/// Style of a table's header.
const HEADER: Style = Style::new().bold();

/// Style of `error:`.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Style of `warning:`.
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// A progress line on a terminal; silent elsewhere. It has no colours.
pub(crate) struct Progress(ProgressBar);

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("position", &self.0.position()).finish_non_exhaustive()
    }
}

impl Progress {
    /// Progress of unknown length: a message.
    pub(crate) fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr(), None)
    }

    /// Progress towards a total, with the time that is left; a message if the total is unknown.
    pub(crate) fn towards(total: Option<usize>) -> Self {
        Self::on(ProgressDrawTarget::stderr(), total)
    }

    fn on(target: ProgressDrawTarget, total: Option<usize>) -> Self {
        let template = match total {
            Some(_) => "[{bar:30}] {pos}/{len} {msg}, ETA {eta}",
            None => "{msg} …",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(total.map(|total| total as u64), target);
        Self(bar.with_style(style.progress_chars("=> ")))
    }

    /// Whether progress is visible. If not, a total that costs requests is not worth it.
    pub(crate) fn is_shown() -> bool {
        std::io::stderr().is_terminal()
    }

    pub(crate) fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    /// Shows how many are done. A total that turns out to be too small grows.
    pub(crate) fn done(&self, count: usize, what: &str) {
        let count = count as u64;
        if self.0.length().is_some_and(|total| total < count) {
            self.0.set_length(count);
        }
        self.0.set_message(what.to_owned());
        self.0.set_position(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Prints a message on standard error.
pub(crate) fn talk(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Prints a warning on standard error.
pub(crate) fn warn(what: &str) {
    let _ = writeln!(anstream::stderr(), "{WARNING}warning:{WARNING:#} {what}");
}

/// Maximum length of a table cell on a terminal.
const CELL_MAX: usize = 60;

/// Prints a table: with a header and shortened cells on a terminal, plain elsewhere.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> std::io::Result<()> {
    table_with(header, rows, CELL_MAX)
}

/// Like [`table`], with the given maximum cell length on a terminal.
pub(crate) fn table_with(header: &[&str], rows: Vec<Vec<String>>, cell_max: usize) -> std::io::Result<()> {
    // Without colours where `NO_COLOR` is set, and where this is not a terminal.
    let mut stdout = anstream::stdout().lock();
    let cut = stdout.is_terminal().then_some(cell_max);
    write_table(&mut stdout, header, rows, cut)?;
    stdout.flush()
}

/// Writes a table; `cut` is the maximum cell length on a terminal.
fn write_table(
    to: &mut impl Write,
    header: &[&str],
    mut rows: Vec<Vec<String>>,
    cut: Option<usize>,
) -> std::io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    if let Some(cell_max) = cut {
        rows.iter_mut().flatten().for_each(|cell| *cell = short(cell, cell_max));
        rows.insert(0, header.iter().map(|name| (*name).to_owned()).collect());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for (number, line) in table.lines().enumerate() {
        let line = line.trim_end();
        match cut.is_some() && number == 0 {
            true => writeln!(to, "{HEADER}{line}{HEADER:#}")?,
            false => writeln!(to, "{line}")?,
        }
    }
    Ok(())
}

/// Returns text on one line with control characters escaped.
pub(crate) fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_debug()),
            false => shown.push(letter),
        }
    }
    shown
}

/// Like [`line()`], shortened to `max` characters.
pub(crate) fn short(text: &str, max: usize) -> String {
    let text = line(text);
    match text.chars().count() > max {
        true => text.chars().take(max - 1).chain(['…']).collect(),
        false => text,
    }
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:=@%+,".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Pretty-prints JSON text, preserving order and numbers.
pub(crate) fn pretty(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if quoted {
            out.push(letter);
            quoted = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        match letter {
            '{' | '[' => {
                out.push(letter);
                while letters.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                match letters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        new_line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => {
                quoted = other == '"';
                out.push(other);
            }
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// A size in megabytes with one decimal.
pub(crate) fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_add(50_000) / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// Formats a count with its noun.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Returns the current time, for relative times in output.
pub(crate) fn now() -> Time {
    Time::from_micros(System.wall().micros())
}

/// Formats a time to the second, in the format of `--at`.
pub(crate) fn moment(at: Time) -> String {
    let text = at.to_string();
    format!("{}Z", text.get(..19).unwrap_or(&text))
}

/// Formats a time with its distance from now.
pub(crate) fn when(at: Time, now: Time) -> String {
    match at > now {
        true => format!("{} (in {})", moment(at), span(at.since(now))),
        false => format!("{} ({} ago)", moment(at), span(now.since(at))),
    }
}

/// Formats a duration in its one or two largest units.
pub(crate) fn span(span: Duration) -> String {
    let secs = span.as_secs();
    match secs {
        0 => format!("{}ms", span.subsec_millis()),
        1..10 => format!("{:.1}s", span.as_secs_f64()),
        10..60 => format!("{secs}s"),
        60..3_600 => two(secs, 60, "m", 1, "s"),
        3_600..86_400 => two(secs, 3_600, "h", 60, "m"),
        _ => two(secs, 86_400, "d", 3_600, "h"),
    }
}

fn two(secs: u64, large: u64, name: &str, small: u64, rest: &str) -> String {
    match secs % large / small {
        0 => format!("{}{name}", secs / large),
        left => format!("{}{name} {left}{rest}", secs / large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_pretty_printed_and_keeps_order_and_numbers() {
        let text = r#"{"b":[],"a":[1,{"t":"x, {y}: \"z\\"}],"n":12345678901234567890123, "e": { } }"#;
        let want = "{\n  \"b\": [],\n  \"a\": [\n    1,\n    {\n      \"t\": \"x, {y}: \\\"z\\\\\"\n    }\n  ],\n  \"n\": 12345678901234567890123,\n  \"e\": {}\n}";
        assert_eq!(pretty(text), want);
        let plain = r#"{"a":{"b":[1,2,"c"]},"d":null}"#;
        let value: serde_json::Value = serde_json::from_str(plain).unwrap();
        assert_eq!(pretty(plain), format!("{value:#}"));
    }

    #[test]
    fn spans_have_at_most_two_units() {
        let shown = |secs| span(Duration::from_secs(secs));
        assert_eq!([shown(12), shown(192), shown(7_200), shown(90_000)], ["12s", "3m 12s", "2h", "1d 1h"]);
        assert_eq!([span(Duration::from_millis(340)), span(Duration::from_millis(1_234))], ["340ms", "1.2s"]);
    }

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        assert_eq!(line("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(short("abcdef", 4), "abc…");
    }

    #[test]
    fn a_word_is_quoted_if_a_shell_would_interpret_it() {
        assert_eq!(quoted("s3://orders/a-b_c.d"), "s3://orders/a-b_c.d");
        assert_eq!([quoted(""), quoted("my store"), quoted("it's")], ["''", "'my store'", "'it'\\''s'"]);
        assert_eq!(quoted("{\"by\": \"ada\"}"), "'{\"by\": \"ada\"}'");
    }

    #[test]
    fn a_table_has_a_header_on_a_terminal_only() {
        let written = |cut| {
            let mut to = Vec::new();
            let rows = vec![vec!["a".to_owned(), "running".into()], vec!["bcd".into(), "ok".into()]];
            write_table(&mut to, &["ID", "STATUS"], rows, cut).unwrap();
            String::from_utf8(to).unwrap()
        };
        assert_eq!(written(None), "a    running\nbcd  ok\n");
        assert_eq!(written(Some(60)), "\x1b[1mID   STATUS\x1b[0m\na    running\nbcd  ok\n");
    }

    #[test]
    fn progress_towards_a_total_shows_both_and_the_time_that_is_left() {
        let screen = indicatif::InMemoryTerm::new(2, 80);
        let progress = Progress::on(ProgressDrawTarget::term_like(Box::new(screen.clone())), Some(200));
        progress.done(100, "runs");
        let shown = screen.contents();
        assert!(shown.contains("100/200 runs, ETA "), "{shown}");
        progress.done(300, "runs");
        progress.say("runs");
        assert!(screen.contents().contains("300/300 runs"), "{}", screen.contents());
        drop(progress);
        assert_eq!(screen.contents(), "", "it is cleared");
    }

    #[test]
    fn progress_without_a_total_is_a_message() {
        let screen = indicatif::InMemoryTerm::new(2, 80);
        let progress = Progress::on(ProgressDrawTarget::term_like(Box::new(screen.clone())), None);
        progress.say("removing benchmark data");
        assert_eq!(screen.contents(), "removing benchmark data …");
    }
}

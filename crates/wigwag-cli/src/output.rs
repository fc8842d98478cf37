//! Standard output is data, standard error is talk.

use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use wigwag::Time;
use wigwag_store::{Clock as _, System};

/// Shows on a terminal what is being done; says nothing elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }

    pub(crate) fn say(&self, what: &str) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K{what} …");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Says something on standard error that is no failure.
pub(crate) fn talk(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Prints a warning on standard error.
pub(crate) fn warn(what: &str) {
    talk(&format!("warning: {what}"));
}

/// What a cell of a table shows at most on a terminal.
const CELL_MAX: usize = 60;

/// Rows as columns: with a header and short cells on a terminal, plain elsewhere.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> std::io::Result<()> {
    table_with(header, rows, CELL_MAX)
}

/// The same, with cells of so many letters on a terminal.
pub(crate) fn table_with(header: &[&str], rows: Vec<Vec<String>>, cell_max: usize) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let cut = stdout.is_terminal().then_some(cell_max);
    write_table(&mut stdout, header, rows, cut)?;
    stdout.flush()
}

/// On a terminal cells are cut.
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
    let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|column| widest(column).unwrap_or(0)).collect();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        match cut.is_some() && number == 0 {
            true => writeln!(to, "\x1b[1m{}\x1b[0m", line.trim_end())?,
            false => writeln!(to, "{}", line.trim_end())?,
        }
    }
    Ok(())
}

/// Text on one line, without anything that a terminal would obey.
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

/// The same, cut to so many letters.
pub(crate) fn short(text: &str, max: usize) -> String {
    let text = line(text);
    match text.chars().count() > max {
        true => text.chars().take(max - 1).chain(['…']).collect(),
        false => text,
    }
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:=@%+,".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// JSON text with line breaks and indents; order and numbers stay as they are.
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

/// So many of something.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The time now, to say how long ago something was.
pub(crate) fn now() -> Time {
    Time::from_micros(System.wall().micros())
}

/// A moment to the second; `--at` takes it back.
pub(crate) fn moment(at: Time) -> String {
    let text = at.to_string();
    format!("{}Z", text.get(..19).unwrap_or(&text))
}

/// A moment, and how far off it is.
pub(crate) fn when(at: Time, now: Time) -> String {
    match at > now {
        true => format!("{} (in {})", moment(at), span(at.since(now))),
        false => format!("{} ({} ago)", moment(at), span(now.since(at))),
    }
}

/// A span in its one or two largest units.
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
    fn json_is_laid_out_as_usual_and_keeps_order_and_numbers() {
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
    fn what_others_wrote_cannot_command_the_terminal() {
        assert_eq!(line("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(short("abcdef", 4), "abc…");
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_read_it_otherwise() {
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
}

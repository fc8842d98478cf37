//! Writes and parses the few XML documents of S3.

use quick_xml::escape::escape;
use serde::Deserialize;

use super::ask::encoded;
use super::fault::{Fault, Result};

/// A writer of an XML document.
#[derive(Debug)]
pub(super) struct Document {
    text: String,
    open: Vec<&'static str>,
}

impl Document {
    pub(super) fn new(name: &'static str) -> Self {
        let space = if name == "Error" { "" } else { " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"" };
        let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{name}{space}>");
        Self { text, open: vec![name] }
    }

    pub(super) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.text.push_str(&format!("<{name}>{}</{name}>", escape(value)));
        self
    }

    /// Writes a key or prefix, percent-encoded if the client requested that.
    pub(super) fn key(&mut self, name: &str, value: &str, encode: bool) -> &mut Self {
        if encode { self.text(name, &encoded(value, true)) } else { self.text(name, value) }
    }

    pub(super) fn begin(&mut self, name: &'static str) -> &mut Self {
        self.text.push_str(&format!("<{name}>"));
        self.open.push(name);
        self
    }

    pub(super) fn close(&mut self) -> &mut Self {
        if let Some(name) = self.open.pop() {
            self.text.push_str(&format!("</{name}>"));
        }
        self
    }

    pub(super) fn end(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }
}

/// The parsed body of `DeleteObjects`.
#[derive(Debug, Deserialize)]
pub(super) struct Delete {
    #[serde(rename = "Object", default)]
    pub(super) objects: Vec<Named>,
    #[serde(rename = "Quiet", default)]
    pub(super) quiet: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    #[serde(rename = "Key")]
    pub(super) key: String,
    #[serde(rename = "VersionId")]
    pub(super) version: Option<String>,
    #[serde(rename = "ETag")]
    pub(super) e_tag: Option<String>,
}

impl Delete {
    pub(super) fn read(body: &[u8]) -> Result<Self> {
        let wrong = |why: String| Fault::new(400, "MalformedXML", format!("not a list of keys to delete: {why}"));
        let text = std::str::from_utf8(body).map_err(|error| wrong(error.to_string()))?;
        quick_xml::de::from_str(text).map_err(|error| wrong(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_and_nothing_breaks_out_of_its_place() {
        let mut document = Document::new("Delete");
        for key in ["a&b<c>\"d'", "é/日本", "plain"] {
            document.begin("Object").text("Key", key).close();
        }
        let read = Delete::read(document.end().as_bytes()).unwrap();
        let keys: Vec<&str> = read.objects.iter().map(|named| named.key.as_str()).collect();
        assert_eq!((keys, read.quiet), (vec!["a&b<c>\"d'", "é/日本", "plain"], false));
    }

    #[test]
    fn a_body_that_is_no_list_of_keys_is_refused() {
        for wrong in ["", "{}", "<Delete><Object></Object></Delete>", "<Delete><Object><Key>a</Key>", "<Delete>\u{0}"] {
            assert_eq!(Delete::read(wrong.as_bytes()).unwrap_err().code, "MalformedXML", "{wrong}");
        }
        assert!(Delete::read(b"\xff").is_err());
    }
}

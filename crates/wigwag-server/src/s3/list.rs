//! Lists of keys in both versions of S3's protocol, page by page.

use axum::response::Response;
use wigwag_store::limits::{KEY_BYTES_MAX, LIST_PAGE};
use wigwag_store::{Listed, Store};

use super::ask::{Ask, BUCKET, Operation};
use super::fault::{Fault, Result};
use super::{document, time, xml};

/// Parameters of a list request.
#[derive(Debug)]
struct Wanted {
    prefix: String,
    delimiter: String,
    /// Strictly after this key.
    after: String,
    limit: usize,
    encode: bool,
}

/// A page of a list: keys, and common prefixes that stand for groups of keys.
#[derive(Debug, Default)]
struct Found {
    keys: Vec<Listed>,
    groups: Vec<String>,
    /// Start of the next page.
    next: Option<Place>,
}

impl Found {
    fn len(&self) -> usize {
        self.keys.len() + self.groups.len()
    }
}

/// Position in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// After this key.
    Key(String),
    /// After all keys with this prefix.
    Group(String),
}

impl Place {
    /// Returns a text that every later key is greater than.
    fn after(&self) -> String {
        match self {
            Self::Key(key) => key.clone(),
            // No key with this prefix is longer than this text, and no character is greater.
            Self::Group(group) => format!("{group}{}", "\u{10FFFF}".repeat(KEY_BYTES_MAX / 4)),
        }
    }

    /// Encodes the position as an opaque token.
    fn to_token(&self) -> String {
        let (kind, text) = match self {
            Self::Key(key) => ('k', key),
            Self::Group(group) => ('g', group),
        };
        format!("{kind}{}", super::sign::hex(text.as_bytes()))
    }

    fn from_token(token: &str) -> Result<Self> {
        let wrong = || Fault::argument("`continuation-token` was not issued by this server");
        let digits = token.as_bytes().get(1..).unwrap_or_default();
        if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let bytes = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        let text = bytes.collect::<Option<Vec<u8>>>().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.filter(|text| text.len() <= KEY_BYTES_MAX).ok_or_else(wrong)?;
        match token.as_bytes().first() {
            Some(b'k') => Ok(Self::Key(text)),
            Some(b'g') => Ok(Self::Group(text)),
            _ => Err(wrong()),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Key(text) | Self::Group(text) => text,
        }
    }
}

impl Wanted {
    fn read(ask: &Ask) -> Result<Self> {
        let text = |name: &str| ask.value(name).unwrap_or_default().to_owned();
        let limit = match ask.value("max-keys") {
            None | Some("") => LIST_PAGE,
            Some(number) => {
                let number: Option<usize> = number.parse().ok();
                number.ok_or_else(|| Fault::argument("`max-keys` is not a number"))?.min(LIST_PAGE)
            }
        };
        let encode = match ask.value("encoding-type") {
            None | Some("") => false,
            Some("url") => true,
            Some(_) => return Err(Fault::argument("`encoding-type` is `url`")),
        };
        let mut wanted =
            Self { prefix: text("prefix"), delimiter: text("delimiter"), after: String::new(), limit, encode };
        for (name, value) in [("prefix", &wanted.prefix), ("delimiter", &wanted.delimiter)] {
            if value.len() > KEY_BYTES_MAX {
                return Err(Fault::argument(format!("`{name}` has at most {KEY_BYTES_MAX} bytes")));
            }
        }
        wanted.after = match (ask.operation, ask.value("continuation-token")) {
            (Operation::ListObjectsV2, Some(token)) => Place::from_token(token)?.after(),
            (Operation::ListObjectsV2, None) => text("start-after"),
            // A marker from an earlier page may be a common prefix.
            _ => match wanted.group_of(&text("marker")) {
                Some(group) if group == text("marker") => Place::Group(group).after(),
                _ => text("marker"),
            },
        };
        Ok(wanted)
    }

    /// Returns the common prefix that stands for the key, if the request groups keys.
    fn group_of(&self, key: &str) -> Option<String> {
        let rest = key.strip_prefix(self.prefix.as_str()).filter(|_| !self.delimiter.is_empty())?;
        let end = self.prefix.len() + rest.find(self.delimiter.as_str())? + self.delimiter.len();
        Some(key[..end].to_owned())
    }

    async fn find(&self, store: &dyn Store) -> Result<Found> {
        let mut found = Found::default();
        let mut place = Place::Key(self.after.clone());
        while found.len() < self.limit {
            // One more key than requested, to detect whether there are more.
            let page =
                store.list(&self.prefix, &place.after(), (self.limit - found.len()).min(LIST_PAGE - 1) + 1).await?;
            let more = page.more;
            for listed in page.entries {
                let group = self.group_of(&listed.key);
                if let (Some(group), Place::Group(last)) = (&group, &place)
                    && group == last
                {
                    continue;
                }
                if found.len() == self.limit {
                    found.next = Some(place);
                    return Ok(found);
                }
                match group {
                    Some(group) => {
                        found.groups.push(group.clone());
                        place = Place::Group(group);
                    }
                    None => {
                        place = Place::Key(listed.key.clone());
                        found.keys.push(listed);
                    }
                }
            }
            if !more {
                return Ok(found);
            }
        }
        // The page is full and the store has more keys, but all of them may belong to the last group.
        if self.limit > 0 && !store.list(&self.prefix, &place.after(), 1).await?.entries.is_empty() {
            found.next = Some(place);
        }
        Ok(found)
    }
}

pub(super) async fn list(store: &dyn Store, ask: &Ask) -> Result<Response> {
    let wanted = Wanted::read(ask)?;
    let found = wanted.find(store).await?;
    let encode = wanted.encode;
    let mut text = xml::Document::new("ListBucketResult");
    text.text("Name", BUCKET).key("Prefix", &wanted.prefix, encode);
    text.text("MaxKeys", &wanted.limit.to_string());
    text.text("IsTruncated", if found.next.is_some() { "true" } else { "false" });
    if !wanted.delimiter.is_empty() {
        text.key("Delimiter", &wanted.delimiter, encode);
    }
    if encode {
        text.text("EncodingType", "url");
    }
    if ask.operation == Operation::ListObjectsV2 {
        text.text("KeyCount", &found.len().to_string());
        for (name, given) in [("StartAfter", "start-after"), ("ContinuationToken", "continuation-token")] {
            if let Some(value) = ask.value(given) {
                text.key(name, value, encode && name == "StartAfter");
            }
        }
        if let Some(next) = &found.next {
            text.text("NextContinuationToken", &next.to_token());
        }
    } else {
        text.key("Marker", ask.value("marker").unwrap_or_default(), encode);
        if let Some(next) = &found.next {
            text.key("NextMarker", next.text(), encode);
        }
    }
    for listed in &found.keys {
        text.begin("Contents").key("Key", &listed.key, encode);
        text.text("LastModified", &time::iso(listed.modified)).text("Size", &listed.size.to_string());
        text.text("StorageClass", "STANDARD").close();
    }
    for group in &found.groups {
        text.begin("CommonPrefixes").key("Prefix", group, encode).close();
    }
    Ok(document(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wigwag_store::{Batch, Memory};

    async fn store(keys: &[&str]) -> Memory {
        let store = Memory::new();
        let batch = keys.iter().fold(Batch::new(), |batch, key| batch.put(*key, "x"));
        store.write(batch).await.unwrap();
        store
    }

    /// Returns the keys and groups of all pages of this size, in order.
    async fn pages(store: &Memory, prefix: &str, delimiter: &str, limit: usize) -> (Vec<String>, Vec<String>) {
        let (mut keys, mut groups) = (Vec::new(), Vec::new());
        let mut wanted =
            Wanted { prefix: prefix.into(), delimiter: delimiter.into(), after: String::new(), limit, encode: false };
        loop {
            let found = wanted.find(store).await.unwrap();
            assert!(found.len() <= limit);
            keys.extend(found.keys.into_iter().map(|listed| listed.key));
            groups.extend(found.groups);
            let Some(next) = found.next else { return (keys, groups) };
            assert_eq!(Place::from_token(&next.to_token()).unwrap(), next);
            wanted.after = next.after();
        }
    }

    #[tokio::test]
    async fn pages_of_any_size_hold_every_key_and_group_once() {
        let top = "\u{10FFFF}".repeat(60);
        let last = format!("b/{top}/{top}");
        let store = store(&["a", "a/1", "a/2", "a/2/x", "a0", "b/1", &last, "b0", "c/1", "c/2"]).await;
        for limit in 1..12 {
            let (keys, groups) = pages(&store, "", "/", limit).await;
            assert_eq!(
                (keys, groups),
                (["a", "a0", "b0"].map(str::to_owned).to_vec(), vec!["a/".into(), "b/".into(), "c/".into()]),
                "{limit}"
            );
            let (keys, groups) = pages(&store, "a/", "/", limit).await;
            assert_eq!((keys, groups), (vec!["a/1".to_owned(), "a/2".into()], vec!["a/2/".to_owned()]), "{limit}");
            let (keys, groups) = pages(&store, "", "", limit).await;
            assert_eq!((keys.len(), groups.len()), (10, 0), "{limit}");
        }
    }

    #[tokio::test]
    async fn a_page_that_ends_with_the_last_group_is_the_last() {
        let keys: Vec<String> = (0..2_500).map(|number| format!("g/{number:04}")).collect();
        let store = store(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let wanted =
            Wanted { prefix: String::new(), delimiter: "/".into(), after: String::new(), limit: 1, encode: false };
        let found = wanted.find(&store).await.unwrap();
        assert_eq!((found.groups, found.next), (vec!["g/".to_owned()], None));
    }

    #[test]
    fn a_token_of_somebody_else_is_refused() {
        for wrong in ["", "k0", "kzz", "k+1", "x61", "kff", "🦀", &format!("k{}", "61".repeat(2_000))] {
            assert_eq!(Place::from_token(wrong).unwrap_err().code, "InvalidArgument", "{wrong}");
        }
    }
}

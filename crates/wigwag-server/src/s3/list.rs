//! Listing keys, in both of S3's ways, page by page.

use axum::response::Response;
use wigwag::store::limits::{KEY_BYTES_MAX, LIST_PAGE};
use wigwag::store::{Listed, Store};

use super::ask::{Ask, BUCKET, Operation};
use super::fault::{Fault, Result};
use super::{document, time, xml};

/// Which keys are wanted.
#[derive(Debug)]
struct Wanted {
    prefix: String,
    delimiter: String,
    /// Strictly after this key.
    after: String,
    limit: usize,
    encode: bool,
}

/// What was found: keys, and what stands for all keys that begin alike.
#[derive(Debug, Default)]
struct Found {
    keys: Vec<Listed>,
    groups: Vec<String>,
    /// Where the next page goes on.
    next: Option<Place>,
}

impl Found {
    fn len(&self) -> usize {
        self.keys.len() + self.groups.len()
    }
}

/// How far a listing is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Up to this key.
    Key(String),
    /// Past all keys that begin so.
    Group(String),
}

impl Place {
    /// Every key that comes later is greater than this.
    fn after(&self) -> String {
        match self {
            Self::Key(key) => key.clone(),
            // No key that begins so is longer than all of these together, and no letter is greater.
            Self::Group(group) => format!("{group}{}", "\u{10FFFF}".repeat(KEY_BYTES_MAX / 4)),
        }
    }

    /// A token that says nothing to anybody else.
    fn to_token(&self) -> String {
        let (kind, text) = match self {
            Self::Key(key) => ('k', key),
            Self::Group(group) => ('g', group),
        };
        format!("{kind}{}", super::sign::hex(text.as_bytes()))
    }

    fn from_token(token: &str) -> Result<Self> {
        let wrong = || Fault::argument("`continuation-token` is not one that this server gave");
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
                number.ok_or_else(|| Fault::argument("`max-keys` is no number"))?.min(LIST_PAGE)
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
            // A marker that the server gave may stand for all keys that begin so.
            _ => match wanted.group_of(&text("marker")) {
                Some(group) if group == text("marker") => Place::Group(group).after(),
                _ => text("marker"),
            },
        };
        Ok(wanted)
    }

    /// What stands for the key, where keys that begin alike are shown together.
    fn group_of(&self, key: &str) -> Option<String> {
        let rest = key.strip_prefix(self.prefix.as_str()).filter(|_| !self.delimiter.is_empty())?;
        let end = self.prefix.len() + rest.find(self.delimiter.as_str())? + self.delimiter.len();
        Some(key[..end].to_owned())
    }

    async fn find(&self, store: &dyn Store) -> Result<Found> {
        let mut found = Found::default();
        let mut place = Place::Key(self.after.clone());
        while found.len() < self.limit {
            // One more than wanted, to know whether there is more.
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
        // The page was filled by its last key, and the store said that there is more: it may all be of the last group.
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
    use wigwag::store::{Batch, Memory};

    async fn store(keys: &[&str]) -> Memory {
        let store = Memory::new();
        let batch = keys.iter().fold(Batch::new(), |batch, key| batch.put(*key, "x"));
        store.write(batch).await.unwrap();
        store
    }

    /// All pages of that size, as keys and groups in order of the pages.
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

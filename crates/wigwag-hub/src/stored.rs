//! Reads messages back from the store.
//!
//! Holds: delivery flags are read by the same code as at the door, so that no flag has two meanings. Messages of earlier
//! versions may have flags that the door rejects today, such as `requireAck: 1`: they count as `false`.

use serde::Deserialize;

use crate::envelope::{Fields, Metadata};
use crate::settings::Millis;

/// The parts of a stored message that the hub needs for its delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredHead {
    pub(crate) id: Box<str>,
    pub(crate) from: Box<str>,
    pub(crate) timestamp: Millis,
    pub(crate) ttl: Option<u64>,
    pub(crate) expects_reply: bool,
    pub(crate) is_reply: bool,
    /// The sender's id of the message.
    pub(crate) original_id: String,
    pub(crate) require_ack: bool,
}

impl StoredHead {
    /// Parses a stored message, or returns why it cannot be read.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head<'a> {
            id: Box<str>,
            from: Box<str>,
            timestamp: Millis,
            ttl: Option<u64>,
            pattern: Option<Box<str>>,
            #[serde(rename = "correlationId")]
            correlation_id: Option<Box<str>>,
            #[serde(borrow)]
            metadata: Fields<'a>,
        }
        let head: Head<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let original_id = head.metadata.word("originalMessageId");
        let original_id = original_id.ok_or("`metadata.originalMessageId` is missing or not a text")?;
        Ok(Self {
            id: head.id,
            from: head.from,
            timestamp: head.timestamp,
            ttl: head.ttl,
            expects_reply: head.pattern.as_deref() == Some("ask"),
            is_reply: head.correlation_id.is_some(),
            original_id: original_id.as_str().to_owned(),
            require_ack: Metadata::from(head.metadata).require_ack,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(metadata: &str) -> Result<StoredHead, String> {
        let body = format!(r#"{{"id":"h-1-2","from":"@(a)","timestamp":5,"ttl":null,"metadata":{metadata}}}"#);
        StoredHead::read(body.as_bytes())
    }

    #[test]
    fn a_flag_has_the_same_meaning_in_the_store_as_at_the_door() {
        for flags in ["true", "false", "1", "\"true\"", "null", "{}", "true,\"requireAck\":1", "1,\"requireAck\":true"]
        {
            let metadata = format!(r#"{{"originalMessageId":"m","requireAck":{flags}}}"#);
            let fields: Fields<'_> = serde_json::from_str(&metadata).unwrap();
            assert_eq!(read(&metadata).unwrap().require_ack, Metadata::from(fields).require_ack, "{flags}");
        }
    }

    #[test]
    fn the_reason_says_what_cannot_be_read() {
        let table = [
            ("{}", "`metadata.originalMessageId` is missing or not a text"),
            (r#"{"originalMessageId":7}"#, "`metadata.originalMessageId` is missing or not a text"),
            ("[]", "invalid type: sequence, expected an object or null at line 1 column 66"),
        ];
        for (metadata, reason) in table {
            assert_eq!(read(metadata).unwrap_err(), reason);
        }
        assert_eq!(StoredHead::read(b"not a frame").unwrap_err(), "expected ident at line 1 column 2");
    }
}

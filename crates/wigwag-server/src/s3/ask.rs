//! Parses a request to `/s3`: its path and query.

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::fault::{Fault, Result};

/// The only bucket.
pub(super) const BUCKET: &str = "wigwag";

/// Path prefix of the bucket's API.
const ROOT: &str = "/s3";

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// Percent-encodes text in the form that signatures require.
pub(super) fn encoded(text: &str, is_path: bool) -> String {
    utf8_percent_encode(text, if is_path { PATH } else { UNRESERVED }).to_string()
}

/// The S3 operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    ListBuckets,
    HeadBucket,
    CreateBucket,
    GetBucketLocation,
    GetBucketVersioning,
    ListObjects,
    ListObjectsV2,
    DeleteObjects,
    GetObject,
    HeadObject,
    PutObject,
    DeleteObject,
    Other,
}

impl Operation {
    /// Name of the operation in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ListBuckets => "ListBuckets",
            Self::HeadBucket => "HeadBucket",
            Self::CreateBucket => "CreateBucket",
            Self::GetBucketLocation => "GetBucketLocation",
            Self::GetBucketVersioning => "GetBucketVersioning",
            Self::ListObjects => "ListObjects",
            Self::ListObjectsV2 => "ListObjectsV2",
            Self::DeleteObjects => "DeleteObjects",
            Self::GetObject => "GetObject",
            Self::HeadObject => "HeadObject",
            Self::PutObject => "PutObject",
            Self::DeleteObject => "DeleteObject",
            Self::Other => "other",
        }
    }

    pub(super) fn writes(self) -> bool {
        matches!(self, Self::CreateBucket | Self::DeleteObjects | Self::PutObject | Self::DeleteObject)
    }
}

/// The parsed head of a request.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// The decoded path, from its beginning.
    pub(super) path: String,
    /// The decoded query parameters, in the given order.
    pub(super) query: Vec<(String, String)>,
    pub(super) operation: Operation,
    pub(super) bucket: String,
    pub(super) key: String,
}

impl Ask {
    pub(super) fn read(parts: &Parts) -> Result<Self> {
        let wrong = || Fault::new(400, "InvalidURI", "the path or the query is not UTF-8");
        let path = percent_decode_str(parts.uri.path()).decode_utf8().map_err(|_| wrong())?.into_owned();
        let mut query = Vec::new();
        for pair in parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |text: &str| {
                let spaced = text.replace('+', " ");
                percent_decode_str(&spaced).decode_utf8().map(std::borrow::Cow::into_owned).map_err(|_| wrong())
            };
            query.push((text(name)?, text(value)?));
        }
        let place = path.strip_prefix(ROOT).unwrap_or(&path);
        let place = place.strip_prefix('/').unwrap_or(place);
        let (bucket, key) = place.split_once('/').unwrap_or((place, ""));
        let mut ask = Self {
            method: parts.method.clone(),
            headers: parts.headers.clone(),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            path,
            query,
            operation: Operation::Other,
        };
        ask.operation = ask.find_operation();
        Ok(ask)
    }

    fn find_operation(&self) -> Operation {
        use Operation as O;
        let method = self.method.as_str();
        match (self.bucket.is_empty(), self.key.is_empty()) {
            (true, _) if method == "GET" => O::ListBuckets,
            (false, true) => match (method, self.part().as_deref()) {
                ("GET", Some("location")) => O::GetBucketLocation,
                ("GET", Some("versioning")) => O::GetBucketVersioning,
                ("GET", None) if self.value("list-type") == Some("2") => O::ListObjectsV2,
                ("GET", None) => O::ListObjects,
                ("POST", Some("delete")) => O::DeleteObjects,
                ("HEAD", None) => O::HeadBucket,
                ("PUT", None) => O::CreateBucket,
                _ => O::Other,
            },
            (false, false) if self.part().is_none() => match method {
                "GET" => O::GetObject,
                "HEAD" => O::HeadObject,
                "PUT" => O::PutObject,
                "DELETE" => O::DeleteObject,
                _ => O::Other,
            },
            _ => O::Other,
        }
    }

    /// Returns the subresource that the query names, such as `location` or `acl`. Parameters that are known not to select
    /// a subresource are ignored; an unknown parameter might change the meaning, so it counts as a subresource.
    fn part(&self) -> Option<String> {
        const PLAIN: [&str; 10] = [
            "list-type",
            "prefix",
            "delimiter",
            "marker",
            "start-after",
            "continuation-token",
            "max-keys",
            "encoding-type",
            "fetch-owner",
            "x-id",
        ];
        let plain = |name: &str, value: &str| {
            PLAIN.contains(&name)
                || name.to_ascii_lowercase().starts_with("x-amz-")
                || (name == "versionId" && value == "null")
        };
        self.query.iter().find(|(name, value)| !plain(name, value)).map(|(name, _)| name.clone())
    }

    /// Returns the value of a query parameter.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a header, if it is present and text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the error for an unsupported request.
    pub(super) fn unknown(&self) -> Fault {
        match self.part() {
            Some(part) => {
                let part: String = part.escape_debug().take(40).collect();
                Fault::not_there(&format!("`{} …?{part}`", self.method))
            }
            None => Fault::new(405, "MethodNotAllowed", format!("method `{}` is not supported here", self.method)),
        }
    }
}

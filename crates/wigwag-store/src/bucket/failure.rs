//! Maps a bucket's responses to errors for the caller.

use std::error::Error as _;

use object_store::client::{HttpError, HttpErrorKind};

use super::http::Seen;
use crate::{Action, Error, ErrorKind, Result};

/// The request that failed.
pub(super) struct Asked<'a> {
    pub(super) action: Action,
    pub(super) key: &'a str,
    pub(super) url: &'a str,
    /// Whether the request was a put of a key that must not exist.
    pub(super) creates: bool,
}

pub(super) struct Failure {
    pub(super) error: object_store::Error,
    pub(super) seen: Seen,
}

impl Failure {
    /// For a get: an absent object is a normal result, an absent bucket is not.
    pub(super) fn or_absent<T>(self, asked: &Asked<'_>) -> Result<Option<T>> {
        let absent = matches!(self.error, object_store::Error::NotFound { .. });
        if absent && !self.text().contains("NoSuchBucket") && !self.text().contains("ContainerNotFound") {
            return Ok(None);
        }
        Err(self.explain(asked))
    }

    pub(super) fn explain(self, asked: &Asked<'_>) -> Error {
        let text = self.text();
        let code = code(&text);
        let kind = self.kind(asked, code);
        let what = match kind {
            ErrorKind::Exists => return Error::exists(asked.key),
            ErrorKind::Changed => return Error::changed(asked.key),
            _ => self.what(asked, code, &text),
        };
        let failed = Error::new(kind, what).on(asked.action, asked.key).wait(self.seen.retry_after);
        let failed = match kind == ErrorKind::Invalid && !is_of_object(self.seen.status, code) {
            true => failed.of_settings(),
            false => failed,
        };
        let away = self.seen.broken == Some(HttpErrorKind::Connect);
        let failed = match if away { Some(AWAY) } else { advice(code, kind) } {
            Some(advice) => failed.hint(advice),
            None => failed,
        };
        failed.because(self.error)
    }

    fn kind(&self, asked: &Asked<'_>, code: &str) -> ErrorKind {
        use object_store::Error as E;
        match &self.error {
            // Azure returns 409 for a key that exists; S3 returns it for colliding writers, of which none landed.
            E::AlreadyExists { .. } if self.seen.status == Some(409) && code != "BlobAlreadyExists" => {
                ErrorKind::Unavailable
            }
            E::AlreadyExists { .. } => ErrorKind::Exists,
            E::Precondition { .. } | E::NotModified { .. } if asked.creates => ErrorKind::Exists,
            E::Precondition { .. } | E::NotModified { .. } => ErrorKind::Changed,
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Denied,
            E::NotFound { .. } | E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } => {
                ErrorKind::Invalid
            }
            _ => self.kind_of_answer(asked.action, code),
        }
    }

    /// The remaining cases: failing servers and broken connections.
    fn kind_of_answer(&self, action: Action, code: &str) -> ErrorKind {
        let in_doubt = if action == Action::Write { ErrorKind::Unknown } else { ErrorKind::Unavailable };
        match (self.seen.status, self.seen.broken) {
            (_, Some(HttpErrorKind::Connect)) => ErrorKind::Unavailable,
            (_, Some(_)) => in_doubt,
            // The error is in the body, which is incomplete: a 404 may concern the bucket or the object.
            (Some(_), None) if self.broke_off() => in_doubt,
            // The status was a success, and then the response broke off, or contained an error for one of several keys.
            (Some(200..=299), _) => in_doubt,
            // A wigwag server reports an unreadable object like this; a retry would not help.
            (Some(500), _) if code == "WigwagDamaged" => ErrorKind::Damaged,
            (Some(429 | 503), _) => ErrorKind::Unavailable,
            (Some(507), _) => ErrorKind::Full,
            (Some(400), _) if code == "RequestTimeout" => ErrorKind::Unavailable,
            (Some(400), _) if matches!(code, "ExpiredToken" | "InvalidToken" | "AuthorizationHeaderMalformed") => {
                ErrorKind::Denied
            }
            (Some(401 | 403), _) => ErrorKind::Denied,
            (Some(408 | 500..=599), _) if is_full(code) => ErrorKind::Full,
            (Some(408 | 500..=599), _) => in_doubt,
            (Some(_), _) => ErrorKind::Invalid,
            // Nothing was sent: there are no credentials to sign with, or none that can be read.
            (None, None) => ErrorKind::Denied,
        }
    }

    fn what(&self, asked: &Asked<'_>, code: &str, text: &str) -> String {
        let url = asked.url;
        match (self.seen.status, code) {
            (Some(_), _) if self.broke_off() => {
                format!("the connection to `{url}` broke in the middle of a response: {}", root(&self.error))
            }
            (_, "NoSuchBucket" | "ContainerNotFound") => format!("bucket not found: `{url}`"),
            (Some(404), _) => format!("bucket not found, or access denied: `{url}`"),
            (Some(409), _) => "another conditional write was under way; nothing landed".into(),
            (Some(200..=299), _) => {
                format!("the connection to `{url}` broke in the middle of a response: {}", root(&self.error))
            }
            (Some(status), "") => format!("`{url}` answered {status}"),
            (Some(status), code) => format!("`{url}` answered {status} {code}"),
            (None, _) => match self.seen.broken {
                Some(HttpErrorKind::Connect) => {
                    format!("cannot reach `{url}`: {}", root(&self.error))
                }
                Some(HttpErrorKind::Timeout) => format!("`{url}` did not answer in time"),
                Some(_) => format!("the connection to `{url}` broke: {}", root(&self.error)),
                None => format!("no request could be made to `{url}`: {text}"),
            },
        }
    }

    /// Whether the head of a response arrived and its body is incomplete.
    fn broke_off(&self) -> bool {
        let mut causes = std::iter::successors(self.error.source(), |cause| (*cause).source());
        self.seen.status.is_some() && causes.any(|cause| cause.is::<HttpError>())
    }

    /// The error with all its causes, which include the response's body.
    fn text(&self) -> String {
        let mut text = self.error.to_string();
        let mut source = self.error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}

/// The innermost cause, which is the actual failure.
fn root(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The error code of S3 and Azure, from the XML of the response.
fn code(text: &str) -> &str {
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code.trim());
    code.filter(|code| code.len() < 64 && code.chars().all(|letter| letter.is_ascii_alphanumeric())).unwrap_or_default()
}

/// Whether a rejection concerns the object itself. Any other rejection concerns the bucket or its settings, and ends
/// once they are corrected.
fn is_of_object(status: Option<u16>, code: &str) -> bool {
    status == Some(413) || matches!(code, "EntityTooLarge" | "KeyTooLongError" | "RequestBodyTooLarge")
}

fn is_full(code: &str) -> bool {
    matches!(code, "XMinioStorageFull" | "InsufficientStorage" | "QuotaExceeded" | "QuotaExceededException")
}

const AWAY: &str = "check that the server is running and that the endpoint is correct; work resumes once it responds";

fn advice(code: &str, kind: ErrorKind) -> Option<&'static str> {
    Some(match (code, kind) {
        ("RequestTimeTooSkewed" | "RequestExpired", _) => {
            "this machine's clock is off by more than the server allows; set it (NTP)"
        }
        ("InvalidAccessKeyId", _) => {
            "the server does not know the access key id; check `AWS_ACCESS_KEY_ID` or the profile"
        }
        ("SignatureDoesNotMatch", _) => {
            "the secret key does not match the access key id; check `AWS_SECRET_ACCESS_KEY` or the profile"
        }
        ("ExpiredToken" | "InvalidToken", _) => "the session token has expired or is wrong; get new credentials",
        ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "IncorrectEndpoint", _) => {
            "the bucket is in another region; set `AWS_REGION` or `--region`"
        }
        ("NoSuchBucket" | "ContainerNotFound", _) => {
            "create the bucket, or check its name, the endpoint and the region"
        }
        (_, ErrorKind::Denied) => {
            "check the credentials, and that they may get, put, delete and list in this bucket; \
             credentials come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, a profile, or the machine's role"
        }
        (_, ErrorKind::Full) => "free space in the bucket; the store then continues",
        ("SlowDown" | "TooManyRequests" | "ServiceUnavailable" | "ThrottlingException", _) => {
            "the server is throttling requests; retry later"
        }
        (_, ErrorKind::Unavailable) => "try again later",
        (_, ErrorKind::Unknown) => "the write may have succeeded; check, or repeat it with the same id or key",
        _ => return None,
    })
}

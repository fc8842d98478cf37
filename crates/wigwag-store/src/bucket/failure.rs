//! What a bucket's answer means to the caller.

use std::error::Error as _;

use object_store::client::{HttpError, HttpErrorKind};

use super::http::Seen;
use crate::{Action, Error, ErrorKind, Result};

/// What was asked when it failed.
pub(super) struct Asked<'a> {
    pub(super) action: Action,
    pub(super) key: &'a str,
    pub(super) url: &'a str,
    /// It was a put of a key that must not exist.
    pub(super) creates: bool,
}

pub(super) struct Failure {
    pub(super) error: object_store::Error,
    pub(super) seen: Seen,
}

impl Failure {
    /// For a get: an absent object is an answer, an absent bucket is not.
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
            // Azure says 409 for a key that exists; S3 says it for writers that collided, of which none landed.
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

    /// What is left: servers in trouble and broken connections.
    fn kind_of_answer(&self, action: Action, code: &str) -> ErrorKind {
        let in_doubt = if action == Action::Write { ErrorKind::Unknown } else { ErrorKind::Unavailable };
        match (self.seen.status, self.seen.broken) {
            (_, Some(HttpErrorKind::Connect)) => ErrorKind::Unavailable,
            (_, Some(_)) => in_doubt,
            // What it says is in the body, and that did not come whole: a 404 may be of the bucket or of the object.
            (Some(_), None) if self.broke_off() => in_doubt,
            // The head said yes and then the answer broke off, or held an error for one of several keys.
            (Some(200..=299), _) => in_doubt,
            // A wigwag server says so of what it cannot read; asking again would not help.
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
            (Some(_), _) if self.broke_off() => format!("the answer of `{url}` broke off: {}", root(&self.error)),
            (_, "NoSuchBucket" | "ContainerNotFound") => format!("there is no bucket `{url}`"),
            (Some(404), _) => format!("there is no bucket `{url}`, or it does not let us see it"),
            (Some(409), _) => "another conditional write was under way; nothing landed".into(),
            (Some(200..=299), _) => format!("the answer of `{url}` broke off: {}", root(&self.error)),
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

    /// Whether the head of an answer came and its body did not come whole.
    fn broke_off(&self) -> bool {
        let mut causes = std::iter::successors(self.error.source(), |cause| (*cause).source());
        self.seen.status.is_some() && causes.any(|cause| cause.is::<HttpError>())
    }

    /// The error with all its causes, where the answer's body is.
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

/// The innermost cause, which says what really happened.
fn root(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// What S3 and Azure call the error, from the XML of the answer.
fn code(text: &str) -> &str {
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code.trim());
    code.filter(|code| code.len() < 64 && code.chars().all(|letter| letter.is_ascii_alphanumeric())).unwrap_or_default()
}

fn is_full(code: &str) -> bool {
    matches!(code, "XMinioStorageFull" | "InsufficientStorage" | "QuotaExceeded" | "QuotaExceededException")
}

const AWAY: &str = "check that the server runs and that the endpoint is right; once it answers, all goes on by itself";

fn advice(code: &str, kind: ErrorKind) -> Option<&'static str> {
    Some(match (code, kind) {
        ("RequestTimeTooSkewed" | "RequestExpired", _) => {
            "this machine's clock is off by more than the server allows; set it (NTP)"
        }
        ("InvalidAccessKeyId", _) => {
            "the server does not know the access key id; check `AWS_ACCESS_KEY_ID` or the profile"
        }
        ("SignatureDoesNotMatch", _) => {
            "the secret key does not fit the access key id; check `AWS_SECRET_ACCESS_KEY` or the profile"
        }
        ("ExpiredToken" | "InvalidToken", _) => "the session token has expired or is wrong; get new credentials",
        ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "IncorrectEndpoint", _) => {
            "the bucket is in another region; set `AWS_REGION` or `--region`"
        }
        ("NoSuchBucket" | "ContainerNotFound", _) => "make the bucket, or check its name, the endpoint and the region",
        (_, ErrorKind::Denied) => {
            "check the credentials, and that they may get, put, delete and list in this bucket; \
             credentials come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, a profile, or the machine's role"
        }
        (_, ErrorKind::Full) => "make room in the bucket; the store goes on as it was",
        ("SlowDown" | "TooManyRequests" | "ServiceUnavailable" | "ThrottlingException", _) => {
            "the server wants fewer requests; try again later"
        }
        (_, ErrorKind::Unavailable) => "try again later",
        (_, ErrorKind::Unknown) => "it may have been done all the same; look, or do it again with the same id or key",
        _ => return None,
    })
}

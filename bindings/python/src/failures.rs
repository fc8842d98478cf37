//! Outcomes and errors on their way between Rust and Python.

use serde::Deserialize;
use serde_json::{Value, json};
use wigwag::{Error, Failure, Payload};
use wigwag_cli::http::Failed;
use wigwag_core::Fault;
use wigwag_server::Code;

/// An outcome: JSON text, or an error as JSON text.
#[derive(Debug)]
pub(crate) enum Outcome {
    Ok(String),
    Failed(String),
}

/// An error as Python tells it.
#[derive(Debug, Default, Deserialize)]
struct Told {
    kind: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    permanent: bool,
    /// Seconds until the next attempt.
    #[serde(default)]
    after: Option<f64>,
    /// The recorded error of a step, raised again by the code.
    #[serde(default)]
    fault: Option<Fault>,
}

impl Outcome {
    pub(crate) fn of(is_ok: bool, text: String) -> Self {
        if is_ok { Self::Ok(text) } else { Self::Failed(text) }
    }

    pub(crate) fn into_parts(self) -> (bool, String) {
        match self {
            Self::Ok(text) => (true, text),
            Self::Failed(text) => (false, text),
        }
    }

    /// The call cannot be done as it was written.
    pub(crate) fn refused(why: &str) -> Self {
        Self::Failed(json!({ "code": "Invalid", "message": why }).to_string())
    }

    /// The outcome of code that Python ran.
    pub(crate) fn into_result(self) -> Result<Payload, Failure> {
        match self {
            Self::Ok(text) => Payload::parse(text).map_err(wigwag::permanent),
            Self::Failed(text) => Err(failure(&text)),
        }
    }

    /// The outcome of a point, for Python.
    pub(crate) fn of_point(outcome: Result<Payload, Failure>) -> Self {
        match outcome {
            Ok(payload) => Self::Ok(payload.text().to_owned()),
            Err(failure) => {
                let fault = json!(failure.fault());
                Self::Failed(json!({ "code": "Failure", "fault": fault }).to_string())
            }
        }
    }

    /// The outcome of a client's call.
    pub(crate) fn of_call(outcome: Result<Value, Error>) -> Self {
        match outcome {
            Ok(value) => Self::Ok(value.to_string()),
            Err(error) => Self::Failed(shown(&error).to_string()),
        }
    }
}

impl Outcome {
    /// The outcome of a request that a server did not carry out.
    pub(crate) fn of_server(failed: &Failed, has_token: bool) -> Self {
        Self::Failed(shown_of_server(failed, has_token).to_string())
    }
}

/// A failure as Python tells it.
pub(crate) fn failure(text: &str) -> Failure {
    let told: Told = serde_json::from_str(text).unwrap_or_default();
    if let Some(fault) = told.fault {
        return Failure::recorded(fault);
    }
    let failure = Failure::new(&told.kind, &told.message, told.detail, told.permanent);
    match told.after.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok()) {
        Some(span) => failure.retry_after(span),
        None => failure,
    }
}

pub(crate) fn shown(error: &Error) -> Value {
    let fields: Vec<Value> =
        error.fields().iter().map(|field| json!({ "path": field.path, "message": field.message })).collect();
    json!({
        "code": format!("{:?}", error.kind()),
        "message": error.to_string(),
        "hint": error.advice(),
        "fault": error.fault(),
        "fields": fields,
    })
}

/// An error of a server, or on the way to it, in the shape of an error of a store's client.
pub(crate) fn shown_of_server(failed: &Failed, has_token: bool) -> Value {
    let fields: Vec<Value> =
        failed.fields().iter().map(|field| json!({ "path": field.path, "message": field.message })).collect();
    let kind = match (failed.code(), failed.is_invalid()) {
        (Some(code), _) => kind_of(code),
        (None, true) => "Invalid",
        (None, false) => "Unavailable",
    };
    let hint = match (failed.code(), failed.advice()) {
        (Some(Code::NotAuthenticated), _) if !has_token => Some("pass `token=`"),
        // The rest names flags of the command.
        (_, Some(hint)) => hint.split("; use `--").next(),
        (_, None) => None,
    };
    json!({
        "code": kind,
        "message": failed.what(),
        "hint": hint,
        "fault": failed.fault(),
        "fields": fields,
    })
}

/// The kind of error that a server's code is: that of the same name, or what its caller does next.
pub(crate) fn kind_of(code: Code) -> &'static str {
    match code {
        Code::NotFound => "NotFound",
        Code::Gone => "Gone",
        Code::Conflict => "Conflict",
        Code::NotRunning => "NotRunning",
        Code::InvalidName => "InvalidName",
        Code::InvalidPayload | Code::BodyTooLarge => "InvalidPayload",
        Code::RejectedSender => "RejectedSender",
        Code::NotWaiting => "NotWaiting",
        Code::UnknownPoint => "UnknownPoint",
        Code::RunFailed => "RunFailed",
        Code::RunCancelled => "RunCancelled",
        Code::TimedOut => "TimedOut",
        Code::Stopped => "Stopped",
        Code::Damaged => "Damaged",
        Code::NotAuthenticated | Code::NotAllowed | Code::ForeignOrigin | Code::ForeignHost | Code::ProxyNotAllowed => {
            "Denied"
        }
        Code::Unavailable | Code::RateLimited | Code::TooManyAttempts | Code::Overloaded => "Unavailable",
        Code::BodyTimeout | Code::RequestTimeout => "Unavailable",
        Code::Invalid | Code::InvalidBody | Code::InvalidQuery | Code::InvalidPath | Code::InvalidHeader => "Invalid",
        Code::MalformedJson | Code::UnsupportedMediaType | Code::NoRoute | Code::MethodNotAllowed => "Invalid",
        _ => "Internal",
    }
}

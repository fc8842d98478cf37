//! Callers and scopes.

mod keys;
mod verify;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use wigwag_core::Name;
use wigwag_hub::{Access, Glob, Rights};

pub use keys::Auth;

use crate::app::App;
use crate::problem::{Code, Problem, Result};

/// A permission of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// `runs:read`: read runs, their steps, logs and inboxes, and open waits.
    RunsRead,
    /// `runs:write`: start runs, and cancel, pause, resume, restart and migrate them.
    RunsWrite,
    /// `signals:NAME`: send signals of that name, and create links for it; `signals:*`: any name.
    Signals(Option<Name>),
    /// `tasks`: submit, read, await and cancel tasks.
    Tasks,
    /// `hub:own:PATTERN`: register matching addresses on the hub.
    HubOwn(Glob),
    /// `hub:send:PATTERN`: send to matching addresses.
    HubSend(Glob),
    /// `hub:publish:PATTERN`: publish to matching topics.
    HubPublish(Glob),
    /// `hub:read:PATTERN`: subscribe to matching topics.
    HubRead(Glob),
    /// `admin`: all operations, and the server's metrics.
    Admin,
}

/// All scopes, for error messages.
const SCOPES: &str = "`runs:read`, `runs:write`, `signals:NAME`, `signals:*`, `tasks`, `hub:own:PATTERN`, `hub:send:PATTERN`, \
                      `hub:publish:PATTERN`, `hub:read:PATTERN` or `admin`";

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunsRead => f.write_str("runs:read"),
            Self::RunsWrite => f.write_str("runs:write"),
            Self::Signals(None) => f.write_str("signals:*"),
            Self::Signals(Some(name)) => write!(f, "signals:{name}"),
            Self::Tasks => f.write_str("tasks"),
            Self::HubOwn(glob) => write!(f, "hub:own:{}", glob.as_str()),
            Self::HubSend(glob) => write!(f, "hub:send:{}", glob.as_str()),
            Self::HubPublish(glob) => write!(f, "hub:publish:{}", glob.as_str()),
            Self::HubRead(glob) => write!(f, "hub:read:{}", glob.as_str()),
            Self::Admin => f.write_str("admin"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "runs:read" => Ok(Self::RunsRead),
            "runs:write" => Ok(Self::RunsWrite),
            "signals:*" => Ok(Self::Signals(None)),
            "tasks" => Ok(Self::Tasks),
            "admin" => Ok(Self::Admin),
            other => {
                parameterised(other).ok_or_else(|| format!("not a scope (want {SCOPES}): `{}`", other.escape_debug()))
            }
        }
    }
}

/// Parses a scope with a parameter.
fn parameterised(text: &str) -> Option<Scope> {
    if let Some(name) = text.strip_prefix("signals:") {
        return Name::new(name).ok().map(|name| Scope::Signals(Some(name)));
    }
    let (verb, pattern) = text.strip_prefix("hub:")?.split_once(':')?;
    let glob = Glob::new(pattern).ok()?;
    Some(match verb {
        "own" => Scope::HubOwn(glob),
        "send" => Scope::HubSend(glob),
        "publish" => Scope::HubPublish(glob),
        "read" => Scope::HubRead(glob),
        _ => return None,
    })
}

/// Authorization that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The route needs no authentication.
    Public,
    /// The scope `runs:read`.
    Read,
    Write,
    Tasks,
    Admin,
    /// `admin`, or an access key of the store itself.
    Store,
    /// Any scope for signals; the handler checks the name.
    Signal,
    /// Any valid token, whatever its scopes.
    Token,
}

impl Need {
    /// Name of the scope, for error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Public => "none",
            Self::Read => "runs:read",
            Self::Write => "runs:write",
            Self::Tasks => "tasks",
            Self::Admin | Self::Store => "admin",
            Self::Signal => "signals:NAME",
            Self::Token => "any",
        }
    }

    fn is_met_by(self, scope: &Scope) -> bool {
        match (self, scope) {
            (_, Scope::Admin) | (Self::Public | Self::Token, _) => true,
            (Self::Read, scope) => *scope == Scope::RunsRead,
            (Self::Write, scope) => *scope == Scope::RunsWrite,
            (Self::Tasks, scope) => *scope == Scope::Tasks,
            (Self::Signal, scope) => matches!(scope, Scope::Signals(_)),
            (Self::Admin | Self::Store, _) => false,
        }
    }
}

/// Identifies a credential: the SHA-256 of a token, or a hash of a key and its rules. Not secret, and never shown.
pub(crate) type Credential = [u8; 32];

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    name: Option<String>,
    /// `None` on a server without tokens.
    scopes: Option<Arc<[Scope]>>,
    /// Expiry of its token, in seconds since 1970.
    until: Option<u64>,
    /// Identifies the token, signing key or access key that was presented; none on a server without tokens.
    credential: Option<Credential>,
    /// Prefixes of its access key; no limit if `None`.
    prefixes: Option<Arc<[String]>>,
    /// It presented the key of this server's record in the store, which no reload changes.
    is_fleet: bool,
}

impl Caller {
    /// The caller on a server without tokens.
    pub(crate) fn anybody() -> Self {
        Self { name: None, scopes: None, until: None, credential: None, prefixes: None, is_fleet: false }
    }

    /// A caller with an access key of the store.
    pub(crate) fn key(id: String, prefixes: Option<Arc<[String]>>, credential: Credential) -> Self {
        Self { prefixes, ..Self::known(id, Arc::default(), credential) }
    }

    /// A process of the fleet, which sends and follows notifications.
    pub(crate) fn fleet() -> Self {
        Self { scopes: Some(Arc::default()), is_fleet: true, ..Self::anybody() }
    }

    /// Name of the token, subject of the JWT, or id of the access key; none without authentication.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its scopes; none on a server without tokens, where everything is allowed.
    pub(crate) fn scopes(&self) -> Option<&[Scope]> {
        self.scopes.as_deref()
    }

    /// Whether it may send signals under any name.
    pub(crate) fn may_name_senders(&self) -> bool {
        self.has(|scope| *scope == Scope::Admin)
    }

    /// Rejects a prefix of the store outside the limits of the access key.
    pub(crate) fn may_follow(&self, prefix: &str) -> Result<()> {
        match &self.prefixes {
            Some(allowed) if !allowed.iter().any(|allowed| prefix.starts_with(allowed.as_str())) => {
                let what = format!("this access key is limited to `{}`", allowed.join("`, `"));
                Err(Problem::new(Code::NotAllowed, what).hint("use a prefix within its limits"))
            }
            _ => Ok(()),
        }
    }

    /// A caller with these scopes.
    fn known(name: String, scopes: Arc<[Scope]>, credential: Credential) -> Self {
        Self { name: Some(name), scopes: Some(scopes), credential: Some(credential), ..Self::anybody() }
    }

    /// Whether it is a process of the fleet.
    pub(crate) fn is_fleet(&self) -> bool {
        self.is_fleet
    }

    /// The credential that was presented.
    pub(crate) fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// Expiry of the credential, in seconds since 1970.
    pub(crate) fn expires(&self) -> Option<u64> {
        self.until
    }

    /// Returns the caller with this expiry.
    fn until(self, seconds: u64) -> Self {
        Self { until: Some(seconds), ..self }
    }

    /// Permissions of the caller on the hub.
    pub(crate) fn access(&self) -> Access {
        let Some(scopes) = &self.scopes else { return Access::Open };
        let mut rights = Rights {
            name: self.name.clone().unwrap_or_default(),
            credential: self.credential.unwrap_or_default(),
            until: self.until.map(|seconds| seconds.saturating_mul(1_000)),
            ..Rights::default()
        };
        for scope in scopes.iter() {
            match scope {
                Scope::Admin => rights.all = true,
                Scope::HubOwn(glob) => rights.own.push(glob.clone()),
                Scope::HubSend(glob) => rights.send.push(glob.clone()),
                Scope::HubPublish(glob) => rights.publish.push(glob.clone()),
                Scope::HubRead(glob) => rights.read.push(glob.clone()),
                Scope::Signals(None) => rights.any_signal = true,
                Scope::Signals(Some(name)) => rights.signals.push(name.as_str().to_owned()),
                Scope::RunsRead => rights.read.extend(
                    ["run/*", "runs", "waiting", "board"].into_iter().filter_map(|topic| Glob::new(topic).ok()),
                ),
                Scope::Tasks => rights.read.extend(Glob::new("tasks").ok()),
                Scope::RunsWrite => {}
            }
        }
        Access::Known(Arc::new(rights))
    }

    fn has(&self, enough: impl Fn(&Scope) -> bool) -> bool {
        self.scopes.as_ref().is_none_or(|scopes| scopes.iter().any(enough))
    }

    pub(crate) fn may(&self, need: Need) -> Result<()> {
        match matches!(need, Need::Public | Need::Token) || self.has(|scope| need.is_met_by(scope)) {
            true => Ok(()),
            false => Err(not_allowed(need.name())),
        }
    }

    pub(crate) fn may_signal(&self, name: &str) -> Result<()> {
        let enough = |scope: &Scope| match scope {
            Scope::Admin | Scope::Signals(None) => true,
            Scope::Signals(Some(allowed)) => allowed.as_str() == name,
            _ => false,
        };
        if self.has(enough) { Ok(()) } else { Err(not_allowed(&format!("signals:{}", shown(name)))) }
    }

    pub(crate) fn may_start(&self) -> Result<()> {
        self.may(Need::Write)
    }

    /// Returns the sender of a signal. A quorum counts names, so a caller may use only its own.
    pub(crate) fn sender(&self, wanted: Option<String>) -> Result<Option<Sender>> {
        let may_say = self.has(|scope| *scope == Scope::Admin);
        let is_own = |wanted: &String| Some(wanted) == self.name.as_ref();
        match (wanted, &self.name) {
            (Some(wanted), _) if may_say || is_own(&wanted) => {
                Ok(Some(Sender { is_authenticated: is_own(&wanted), name: wanted }))
            }
            (Some(_), _) => Err(Problem::new(Code::NotAllowed, "`by` must be the name of the token")
                .hint("omit `by`, or use a token with the scope `admin`")),
            (None, own) => Ok(own.clone().map(|name| Sender { name, is_authenticated: true })),
        }
    }
}

/// Sender of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) name: String,
    /// Whether the sender is the authenticated caller; otherwise the name is only claimed.
    pub(crate) is_authenticated: bool,
}

fn not_allowed(scope: &str) -> Problem {
    Problem::new(Code::NotAllowed, format!("the token lacks the scope `{scope}`"))
}

/// The beginning of a text that a client sent, for messages and the log.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self> {
        // The guard of every route inserts it.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Problem::new(Code::Internal, "a route without a guard"))
    }
}

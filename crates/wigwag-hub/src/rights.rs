//! Access rights of a session.

use std::sync::Arc;

use crate::glob::Glob;
use crate::settings::Millis;

/// Access level of a connection, by its token.
#[derive(Clone, Debug)]
pub enum Access {
    /// The server requires no token: all operations are allowed.
    Open,
    /// A valid token with these rights.
    Known(Arc<Rights>),
    /// A token is required, and none or an invalid one was sent.
    Nobody,
}

/// Rights of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Name of the token.
    pub name: String,
    /// Identifies the token or signing key that was presented, for [`Hub::credentials`](crate::Hub::credentials).
    pub credential: [u8; 32],
    /// Time at which the token expires.
    pub until: Option<Millis>,
    /// Whether it grants all rights.
    pub all: bool,
    /// Addresses that it may register.
    pub own: Vec<Glob>,
    /// Addresses that it may send to.
    pub send: Vec<Glob>,
    /// Topics that it may publish to.
    pub publish: Vec<Glob>,
    /// Topics that it may read.
    pub read: Vec<Glob>,
    /// Names of signals that it may send to any run.
    pub signals: Vec<String>,
    /// Whether it may send signals of any name.
    pub any_signal: bool,
}

impl Access {
    fn rights(&self) -> Option<&Rights> {
        match self {
            Self::Known(rights) if !rights.all => Some(rights),
            _ => None,
        }
    }

    fn fits(&self, globs: impl Fn(&Rights) -> &[Glob], text: &str) -> bool {
        self.rights().is_none_or(|rights| globs(rights).iter().any(|glob| glob.matches(text)))
    }

    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Known(rights) => Some(&rights.name),
            _ => None,
        }
    }

    pub(crate) fn until(&self) -> Option<Millis> {
        match self {
            Self::Known(rights) => rights.until,
            _ => None,
        }
    }

    pub(crate) fn may_own(&self, address: &str) -> bool {
        self.fits(|rights| &rights.own, address)
    }

    pub(crate) fn may_send(&self, address: &str) -> bool {
        self.fits(|rights| &rights.send, address)
    }

    pub(crate) fn may_signal(&self, address: &str, name: &str) -> bool {
        let by_name = |rights: &Rights| rights.any_signal || rights.signals.iter().any(|allowed| allowed == name);
        self.may_send(address) || self.rights().is_some_and(by_name)
    }

    pub(crate) fn may_publish(&self, topic: &str) -> bool {
        self.fits(|rights| &rights.publish, topic)
    }

    pub(crate) fn may_read(&self, topic: &str) -> bool {
        self.fits(|rights| &rights.read, topic)
    }
}

//! What a session may do.

use std::sync::Arc;

use crate::glob::Glob;
use crate::settings::Millis;

/// Who a connection is, as far as its token shows.
#[derive(Clone, Debug)]
pub enum Access {
    /// The server wants no tokens: it may do everything.
    Open,
    /// A token with these rights.
    Known(Arc<Rights>),
    /// A token is wanted and there is none that counts.
    Nobody,
}

/// What a token may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// In whose name.
    pub name: String,
    /// Until when.
    pub until: Option<Millis>,
    /// Everything.
    pub all: bool,
    /// Addresses it may register.
    pub own: Vec<Glob>,
    /// Addresses it may send to.
    pub send: Vec<Glob>,
    /// Topics it may publish to.
    pub publish: Vec<Glob>,
    /// Topics it may hear.
    pub read: Vec<Glob>,
    /// Signals it may send to any run: these names.
    pub signals: Vec<String>,
    /// Or all names.
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

//! TLS by rustls.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::Error;

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls(pub(crate) TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// From PEM texts: the certificate, with those that it rests on after it, and its private key.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        let hint = "give the certificate with its chain, and its key, as PEM text";
        let wrong = |what: &str, error: &dyn fmt::Display| Error::new(format!("{what} cannot be used: {error}"), hint);
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| wrong("the certificate", &error))?;
        if chain.is_empty() {
            return Err(wrong("the certificate", &"there is none in the text"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong("the key", &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|error| wrong("the certificate", &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

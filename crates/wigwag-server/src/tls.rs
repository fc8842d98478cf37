//! TLS with rustls.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
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
    /// Creates it from PEM texts: the certificate, followed by its chain, and its private key.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        Self::build(certificate, key, None)
    }

    /// Same as [`Tls::from_pem`], and requires client certificates of these authorities (mTLS). Clients need a token as well.
    pub fn with_client_authority(certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<Self, Error> {
        Self::build(certificate, key, Some(authorities))
    }

    fn build(certificate: &[u8], key: &[u8], authorities: Option<&[u8]>) -> Result<Self, Error> {
        let hint = "give the certificate with its chain, and its key, as PEM text";
        let wrong = |what: &str, error: &dyn fmt::Display| Error::new(format!("{what} cannot be used: {error}"), hint);
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| wrong("the certificate", &error))?;
        if chain.is_empty() {
            return Err(wrong("the certificate", &"the PEM text contains none"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong("the key", &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = authorities.map(|pem| client_verifier(pem, &provider)).transpose()?;
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().and_then(|config| {
                match verifier {
                    Some(verifier) => config.with_client_cert_verifier(verifier).with_single_cert(chain, key),
                    None => config.with_no_client_auth().with_single_cert(chain, key),
                }
            });
        let mut config = config.map_err(|error| wrong("the certificate", &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Creates a verifier of client certificates of these authorities.
fn client_verifier(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let hint = "give the certificates of the authorities as PEM text";
    let wrong = |error: &dyn fmt::Display| {
        Error::new(format!("the certificates of client authorities are invalid: {error}"), hint)
    };
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(pem) {
        roots.add(authority.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"the PEM text contains none"));
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| wrong(&error))
}

//! JWT signature verification with ring, which TLS already depends on. Signing is not supported.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use ring::{hmac, signature as ring_signature};

/// Installs ring as the process-wide provider of `jsonwebtoken`. Idempotent.
pub(super) fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
        verifier_factory,
        key_utils: KeyUtils::new_unimplemented(),
    };
    // The embedding program may have installed another provider.
    let _ = PROVIDER.install_default();
}

fn verifier_factory(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let family = match algorithm {
        Algorithm::HS256 => AlgorithmFamily::Hmac,
        Algorithm::RS256 => AlgorithmFamily::Rsa,
        Algorithm::EdDSA => AlgorithmFamily::Ed,
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    if key.family() != family {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(Ring { algorithm: *algorithm, key: key.try_get_as_bytes()?.to_vec() }))
}

struct Ring {
    algorithm: Algorithm,
    key: Vec<u8>,
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], given: &Vec<u8>) -> Result<(), signature::Error> {
        let public = |algorithm: &'static dyn ring_signature::VerificationAlgorithm| {
            ring_signature::UnparsedPublicKey::new(algorithm, &self.key).verify(message, given)
        };
        let checked = match self.algorithm {
            Algorithm::HS256 => hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &self.key), message, given),
            Algorithm::RS256 => public(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
            _ => public(&ring_signature::ED25519),
        };
        checked.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

//! Signs JWTs, as an issuer does.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

/// Signs claims with a secret, or with a private key in PEM.
pub(crate) fn jwt(algorithm: &str, key: &[u8], claims: &Value) -> String {
    let text = unsigned(algorithm, claims);
    let text = text.trim_end_matches('.');
    let mac = |kind| hmac::sign(&hmac::Key::new(kind, key), text.as_bytes()).as_ref().to_vec();
    let signature = match algorithm {
        "HS256" => mac(hmac::HMAC_SHA256),
        "HS384" => mac(hmac::HMAC_SHA384),
        "HS512" => mac(hmac::HMAC_SHA512),
        "EdDSA" => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der(key)).unwrap();
            pair.sign(text.as_bytes()).as_ref().to_vec()
        }
        "RS256" => {
            let pair = RsaKeyPair::from_pkcs8(&der(key)).unwrap();
            let mut signature = vec![0; pair.public().modulus_len()];
            pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
            signature
        }
        other => panic!("{other}"),
    };
    format!("{text}.{}", BASE64.encode(signature))
}

/// An unsigned token with this `alg`.
pub(crate) fn unsigned(algorithm: &str, claims: &Value) -> String {
    let encoded = |part: &Value| BASE64.encode(part.to_string());
    format!("{}.{}.", encoded(&json!({"alg": algorithm, "typ": "JWT"})), encoded(claims))
}

fn der(pem: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(pem).unwrap();
    let lines: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(lines).unwrap()
}

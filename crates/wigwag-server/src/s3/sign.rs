//! Verifies signatures of requests: AWS Signature Version 4, in headers or in the query.
//!
//! Holds: a body is read only after the signature of the head is verified; signatures are compared in constant time;
//! all headers with a meaning in S3 (`x-amz-…`) are covered by the signature.

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use wigwag_store::Stamp;

use super::ask::{Ask, encoded};
use super::fault::{Fault, Result};
use super::keys::{Access, S3Keys};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Maximum error of a client's clock.
const SKEW_SECONDS: i64 = 15 * 60;

/// Maximum lifetime of a presigned URL.
const LIFE_SECONDS_MAX: i64 = 7 * 24 * 3_600;

/// The caller, and how its body is verified.
#[derive(Debug)]
pub(super) struct Caller {
    /// Id of the access key; none for an unsigned request.
    pub(super) id: Option<String>,
    pub(super) access: Access,
    pub(super) payload: Payload,
    pub(super) chain: Option<Chain>,
}

/// How a body is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// The body is not signed.
    Unsigned,
    /// The whole body is signed by this hash.
    Whole(String),
    /// The body is in chunks (`aws-chunked`), each signed or not.
    Chunks { signed: bool },
}

/// The signing state of chunks: each signature covers the previous one.
#[derive(Debug)]
pub(super) struct Chain {
    key: [u8; 32],
    date: String,
    scope: String,
    pub(super) last: String,
}

/// The parsed parameters of a signature.
struct Claim {
    id: String,
    date: String,
    scope: String,
    region: String,
    headers: Vec<String>,
    signature: String,
    /// Lifetime of a presigned URL; absent for a signature in a header.
    life: Option<i64>,
}

/// Authenticates a request. `open` is the access of unsigned requests.
pub(super) fn check(ask: &Ask, keys: &S3Keys, open: Option<Access>, now: Stamp) -> Result<Caller> {
    let payload = payload(ask)?;
    let claim = match (ask.value("X-Amz-Signature"), ask.header("authorization")) {
        (Some(_), Some(_)) => return Err(Fault::argument("the request is signed twice, in its query and its headers")),
        (Some(_), None) => in_query(ask)?,
        (None, Some(header)) => in_header(ask, header)?,
        (None, None) => {
            let unsigned = || Fault::denied("the request is not signed; configure an access key and its secret");
            return Ok(Caller { id: None, access: open.ok_or_else(unsigned)?, payload, chain: None });
        }
    };
    timely(&claim, now)?;
    if ask.header("x-amz-security-token").or(ask.value("X-Amz-Security-Token")).is_some() {
        return Err(Fault::new(400, "InvalidToken", "access keys of this server have no session token; unset it"));
    }
    let key = keys.find(&claim.id).ok_or_else(|| {
        let shown: String = claim.id.escape_debug().take(40).collect();
        Fault::new(403, "InvalidAccessKeyId", format!("unknown access key `{shown}`"))
    })?;
    covers(ask, &claim)?;
    let signing = signing_key(key.secret(), &claim);
    let wanted = sign(&signing, &to_sign(&claim, &canonical(ask, &claim)?));
    if !same(&wanted, &claim.signature) {
        let what = "the signature does not match the request; check the secret, and that no proxy changes the request";
        return Err(Fault::new(403, "SignatureDoesNotMatch", what));
    }
    let chain = Chain { key: signing, date: claim.date, scope: claim.scope, last: claim.signature };
    Ok(Caller { id: Some(claim.id), access: key.access().clone(), payload, chain: Some(chain) })
}

fn payload(ask: &Ask) -> Result<Payload> {
    let chunks = |signed| Ok(Payload::Chunks { signed });
    match ask.header("x-amz-content-sha256") {
        None | Some("UNSIGNED-PAYLOAD") => Ok(Payload::Unsigned),
        Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER") => chunks(false),
        Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD" | "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") => chunks(true),
        Some(hash) if hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok(Payload::Whole(hash.to_ascii_lowercase()))
        }
        Some(_) => Err(Fault::argument("`x-amz-content-sha256` is neither a SHA-256 nor a supported way of signing")),
    }
}

fn malformed(what: &str) -> Fault {
    Fault::new(400, "AuthorizationHeaderMalformed", format!("the signature cannot be read: {what}"))
}

fn in_header(ask: &Ask, header: &str) -> Result<Claim> {
    let rest = header.strip_prefix(ALGORITHM).ok_or_else(|| malformed("only AWS4-HMAC-SHA256 is supported"))?;
    let part = |name: &str| {
        let mut parts = rest.split(',').map(str::trim);
        parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
    };
    let missing = |name: &str| malformed(&format!("`{name}` is missing"));
    let date = ask.header("x-amz-date").ok_or_else(|| missing("x-amz-date"))?;
    if ask.header("x-amz-content-sha256").is_none() {
        return Err(missing("x-amz-content-sha256"));
    }
    let credential = part("Credential").ok_or_else(|| missing("Credential"))?;
    let headers = part("SignedHeaders").ok_or_else(|| missing("SignedHeaders"))?;
    let signature = part("Signature").ok_or_else(|| missing("Signature"))?;
    claim(credential, date, headers, signature, None)
}

fn in_query(ask: &Ask) -> Result<Claim> {
    let part = |name: &str| ask.value(name).ok_or_else(|| malformed(&format!("`{name}` is missing")));
    if part("X-Amz-Algorithm")? != ALGORITHM {
        return Err(malformed("only AWS4-HMAC-SHA256 is supported"));
    }
    let life = part("X-Amz-Expires")?.parse().ok().filter(|life| (1..=LIFE_SECONDS_MAX).contains(life));
    let life = life.ok_or_else(|| malformed("`X-Amz-Expires` is 1 to 604800 seconds"))?;
    let (credential, date) = (part("X-Amz-Credential")?, part("X-Amz-Date")?);
    claim(credential, date, part("X-Amz-SignedHeaders")?, part("X-Amz-Signature")?, Some(life))
}

fn claim(credential: &str, date: &str, headers: &str, signature: &str, life: Option<i64>) -> Result<Claim> {
    let wrong = || malformed("a credential is `ID/YYYYMMDD/REGION/s3/aws4_request`, its day that of the date");
    let (id, scope) = credential.split_once('/').ok_or_else(wrong)?;
    let [day, region, "s3", "aws4_request"] = scope.split('/').collect::<Vec<_>>()[..] else { return Err(wrong()) };
    if !date.starts_with(day) || day.len() != 8 {
        return Err(wrong());
    }
    Ok(Claim {
        id: id.to_owned(),
        date: date.to_owned(),
        region: region.to_owned(),
        scope: scope.to_owned(),
        headers: headers.split(';').map(str::to_ascii_lowercase).collect(),
        signature: signature.to_owned(),
        life,
    })
}

/// Rejects a signature that is too old or from the future.
fn timely(claim: &Claim, now: Stamp) -> Result<()> {
    let read = DateTime::strptime("%Y%m%dT%H%M%SZ", &claim.date).and_then(|date| date.to_zoned(TimeZone::UTC));
    let signed = read.map_err(|_| malformed("a date is `YYYYMMDDTHHMMSSZ`"))?.timestamp().as_second();
    let age = i64::try_from(now.micros() / 1_000_000).unwrap_or(i64::MAX).saturating_sub(signed);
    match claim.life {
        Some(life) if age > life => Err(Fault::denied("Request has expired")),
        Some(_) if age >= -SKEW_SECONDS => Ok(()),
        None if age.abs() <= SKEW_SECONDS => Ok(()),
        _ => {
            let what = "the clock that signed the request differs from the server's by more than 15 minutes";
            Err(Fault::new(403, "RequestTimeTooSkewed", what))
        }
    }
}

/// The host and all S3 headers must be signed: changing them in transit would change the operation.
fn covers(ask: &Ask, claim: &Claim) -> Result<()> {
    let is_covered = |name: &str| claim.headers.iter().any(|covered| covered == name);
    let mut bare = ask.headers.keys().map(axum::http::HeaderName::as_str);
    let bare = bare.find(|name| (*name == "host" || name.starts_with("x-amz-")) && !is_covered(name));
    match bare {
        Some(name) => Err(Fault::denied(format!("header `{name}` is present and not signed"))),
        None => Ok(()),
    }
}

/// Builds the canonical request.
fn canonical(ask: &Ask, claim: &Claim) -> Result<String> {
    let mut query: Vec<(String, String)> = ask
        .query
        .iter()
        .filter(|(name, _)| name != "X-Amz-Signature")
        .map(|(name, value)| (encoded(name, false), encoded(value, false)))
        .collect();
    query.sort_unstable();
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut headers = String::new();
    for name in &claim.headers {
        let values: Vec<String> = ask.headers.get_all(name).iter().map(|value| plain(value.as_bytes())).collect();
        if values.is_empty() {
            let shown: String = name.escape_debug().take(40).collect();
            return Err(Fault::denied(format!("header `{shown}` is signed and missing")));
        }
        headers.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    let unsaid = "UNSIGNED-PAYLOAD";
    let hash = ask.header("x-amz-content-sha256").or(ask.value("X-Amz-Content-Sha256")).unwrap_or(unsaid);
    let (path, names) = (encoded(&ask.path, true), claim.headers.join(";"));
    Ok(format!("{}\n{path}\n{}\n{headers}\n{names}\n{hash}", ask.method, query.join("&")))
}

/// Trims a header's value and collapses its inner spaces.
fn plain(value: &[u8]) -> String {
    String::from_utf8_lossy(value).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn to_sign(claim: &Claim, canonical: &str) -> String {
    format!("{ALGORITHM}\n{}\n{}\n{}", claim.date, claim.scope, hex(&Sha256::digest(canonical)))
}

fn signing_key(secret: &str, claim: &Claim) -> [u8; 32] {
    let day = mac(format!("AWS4{secret}").as_bytes(), claim.scope.split('/').next().unwrap_or_default());
    [claim.region.as_str(), "s3", "aws4_request"].iter().fold(day, |key, part| mac(&key, part))
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

fn sign(key: &[u8], text: &str) -> String {
    hex(&mac(key, text))
}

pub(super) fn same(one: &str, other: &str) -> bool {
    bool::from(one.as_bytes().ct_eq(other.as_bytes()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Chain {
    /// Returns the signature of the next chunk.
    pub(super) fn chunk(&self, data: &[u8]) -> String {
        let (nothing, data) = (hex(&Sha256::digest(b"")), hex(&Sha256::digest(data)));
        let Self { date, scope, last, .. } = self;
        sign(&self.key, &format!("{ALGORITHM}-PAYLOAD\n{date}\n{scope}\n{last}\n{nothing}\n{data}"))
    }

    /// Returns the signature of the trailers, given as lines that end with a line feed.
    pub(super) fn trailers(&self, lines: &str) -> String {
        let Self { date, scope, last, .. } = self;
        let hash = hex(&Sha256::digest(lines));
        sign(&self.key, &format!("{ALGORITHM}-TRAILER\n{date}\n{scope}\n{last}\n{hash}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    /// The keys, requests and signatures of the examples in the documentation of Amazon S3.
    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
    const DATE: &str = "20130524T000000Z";
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const AT: u64 = 1_369_353_600_000_000;

    fn keys() -> S3Keys {
        S3Keys::new().full(ID, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").unwrap()
    }

    fn ask(method: &str, url: &str, headers: &[(&str, &str)]) -> Ask {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ask::read(&request.body(()).unwrap().into_parts().0).unwrap()
    }

    fn at(seconds: i64) -> Stamp {
        Stamp::from_micros(AT.wrapping_add_signed(seconds * 1_000_000))
    }

    fn code(asked: &Ask, now: Stamp) -> &'static str {
        check(asked, &keys(), None, now).map_or_else(|fault| fault.code, |_| "let in")
    }

    fn signed(headers: &str, signature: &str) -> String {
        format!("{ALGORITHM} Credential={ID}/{SCOPE},SignedHeaders={headers},Signature={signature}")
    }

    fn get(signature: &str, range: &str) -> Ask {
        let authorization = signed("host;range;x-amz-content-sha256;x-amz-date", signature);
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", range),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", DATE),
            ("authorization", &authorization),
        ];
        ask("GET", "/test.txt", &headers)
    }

    const GET: &str = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";

    #[test]
    fn a_signature_in_the_headers_is_that_of_the_example() {
        assert_eq!(code(&get(GET, "bytes=0-9"), at(0)), "let in");
        assert_eq!(code(&get(GET, "bytes=0-8"), at(0)), "SignatureDoesNotMatch");
        assert_eq!(code(&get(&GET.replace('f', "e"), "bytes=0-9"), at(0)), "SignatureDoesNotMatch");
        assert_eq!(code(&get("", "bytes=0-9"), at(0)), "SignatureDoesNotMatch");
        assert_eq!(code(&get(GET, "bytes=0-9"), at(901)), "RequestTimeTooSkewed");
        assert_eq!(code(&get(GET, "bytes=0-9"), at(-901)), "RequestTimeTooSkewed");
        let mut extra = get(GET, "bytes=0-9");
        extra.headers.insert("x-amz-copy-source", "/b/k".parse().unwrap());
        assert_eq!(code(&extra, at(0)), "AccessDenied", "a header of S3 that nobody signed");
        assert_eq!(check(&get(GET, "bytes=0-9"), &S3Keys::new(), None, at(0)).unwrap_err().code, "InvalidAccessKeyId");
    }

    #[test]
    fn a_signature_in_the_query_is_that_of_the_example_and_dies_with_it() {
        let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let url = |expires: &str| {
            format!(
                "/test.txt?X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={ID}%2F{}&X-Amz-Date={DATE}&\
                 X-Amz-Expires={expires}&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}",
                SCOPE.replace('/', "%2F")
            )
        };
        let asked = |expires: &str| ask("GET", &url(expires), &[("host", "examplebucket.s3.amazonaws.com")]);
        assert_eq!(code(&asked("86400"), at(86_400)), "let in");
        assert_eq!(code(&asked("86400"), at(86_401)), "AccessDenied");
        assert_eq!(code(&asked("86400"), at(-901)), "RequestTimeTooSkewed");
        assert_eq!(code(&asked("86401"), at(0)), "SignatureDoesNotMatch", "who lengthens its life breaks it");
        for wrong in ["0", "-1", "604801", "soon"] {
            assert_eq!(code(&asked(wrong), at(0)), "AuthorizationHeaderMalformed", "{wrong}");
        }
    }

    #[test]
    fn signatures_of_chunks_are_those_of_the_example() {
        let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
        let names = "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;\
                     x-amz-decoded-content-length;x-amz-storage-class";
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("content-length", "66824"),
            ("host", "s3.amazonaws.com"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ("x-amz-date", DATE),
            ("x-amz-decoded-content-length", "66560"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("authorization", &signed(names, seed)),
        ];
        let caller = check(&ask("PUT", "/examplebucket/chunkObject.txt", &headers), &keys(), None, at(0)).unwrap();
        assert_eq!(caller.payload, Payload::Chunks { signed: true });
        let mut chain = caller.chain.unwrap();
        for (size, signature) in [
            (65_536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
            (1_024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
            (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
        ] {
            chain.last = chain.chunk(&vec![b'a'; size]);
            assert_eq!(chain.last, signature);
        }
    }

    #[test]
    fn what_cannot_be_read_as_a_signature_is_refused() {
        for wrong in [
            "",
            "Basic d2lnd2FnOndpZ3dhZw==",
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 Credential=x,SignedHeaders=host,Signature=x",
            "AWS4-HMAC-SHA256 Credential=x/20130524/r/ec2/aws4_request,SignedHeaders=host,Signature=x",
            "AWS4-HMAC-SHA256 Credential=x/20130525/r/s3/aws4_request,SignedHeaders=host,Signature=x",
        ] {
            let headers = [("x-amz-date", DATE), ("x-amz-content-sha256", EMPTY), ("authorization", wrong)];
            let found = code(&ask("GET", "/s3/wigwag", &headers), at(0));
            assert_eq!(found, "AuthorizationHeaderMalformed", "{wrong}");
        }
        assert_eq!(code(&ask("GET", "/s3/wigwag", &[]), at(0)), "AccessDenied");
    }
}

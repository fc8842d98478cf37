//! The checksums that clients send with a body. Each is verified; unsupported ones are rejected.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest as _, Sha256};

use super::fault::{Fault, Result};

const CRC32: u64 = 0xEDB8_8320;
const CRC32C: u64 = 0x82F6_3B78;
const CRC64_NVME: u64 = 0x9A6C_9329_AC4B_C9B5;

/// Verifies the checksum in a header or trailer. Other headers are ignored.
pub(super) fn check(name: &str, value: &str, body: &[u8]) -> Result<()> {
    let found = match name {
        "content-md5" => Md5::digest(body).to_vec(),
        "x-amz-checksum-sha256" => Sha256::digest(body).to_vec(),
        "x-amz-checksum-crc32" => crc(CRC32, 32, body).to_be_bytes()[4..].to_vec(),
        "x-amz-checksum-crc32c" => crc(CRC32C, 32, body).to_be_bytes()[4..].to_vec(),
        "x-amz-checksum-crc64nvme" => crc(CRC64_NVME, 64, body).to_be_bytes().to_vec(),
        // These two describe a checksum and contain none.
        "x-amz-checksum-algorithm" | "x-amz-checksum-type" => return Ok(()),
        other if other.starts_with("x-amz-checksum-") => return Err(Fault::not_there(&format!("`{other}`"))),
        _ => return Ok(()),
    };
    let given = STANDARD.decode(value.trim()).map_err(|_| {
        let code = if name == "content-md5" { "InvalidDigest" } else { "InvalidRequest" };
        Fault::new(400, code, format!("`{name}` is not base64"))
    })?;
    match given == found {
        true => Ok(()),
        false => Err(Fault::new(400, "BadDigest", format!("the body does not match `{name}`; send it again"))),
    }
}

/// Computes a cyclic redundancy check; the polynomial has its bits reversed.
fn crc(polynomial: u64, bits: u32, body: &[u8]) -> u64 {
    let ones = u64::MAX >> (64 - bits);
    let table: [u64; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u64, |rest, _| if rest & 1 == 1 { (rest >> 1) ^ polynomial } else { rest >> 1 })
    });
    let rest = body.iter().fold(ones, |rest, byte| (rest >> 8) ^ table[usize::from(rest as u8 ^ byte)]);
    rest ^ ones
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published check value of each algorithm.
    #[test]
    fn checksums_are_those_that_their_authors_give() {
        let body = b"123456789";
        assert_eq!(crc(CRC32, 32, body), 0xCBF4_3926);
        assert_eq!(crc(CRC32C, 32, body), 0xE306_9283);
        assert_eq!(crc(CRC64_NVME, 64, body), 0xAE8B_1486_0A79_9888);
        check("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==", body).unwrap();
        check("x-amz-checksum-crc32", "y/Q5Jg==", body).unwrap();
    }

    #[test]
    fn a_checksum_that_does_not_fit_or_is_not_known_is_refused() {
        let refused = |name: &str, value: &str| check(name, value, b"x").unwrap_err().code;
        assert_eq!(refused("x-amz-checksum-crc32", "y/Q5Jg=="), "BadDigest");
        assert_eq!(refused("x-amz-checksum-crc32", "?"), "InvalidRequest");
        assert_eq!(refused("content-md5", "?"), "InvalidDigest");
        assert_eq!(refused("x-amz-checksum-sha1", "AAAA"), "NotImplemented");
        check("x-amz-checksum-algorithm", "CRC32", b"x").unwrap();
        check("x-amz-date", "whenever", b"x").unwrap();
    }
}

//! `wigwag token`: creates an API token.

use std::io::Write as _;

use serde_json::json;
use wigwag_server::{Auth, Scope};

use crate::args::Token;
use crate::error::Failed;
use crate::output::talk;

pub(super) fn run(wanted: &Token, json: bool) -> Result<(), Failed> {
    if wanted.name.is_empty() || wanted.name.contains(|letter: char| letter.is_control() || "\"\\".contains(letter)) {
        return Err(Failed::wrong("invalid token name: it is empty, or has quotes or control characters")
            .hint("NAME identifies the holder of the token, such as `ci`"));
    }
    let scopes: Vec<String> = wanted.scope.iter().map(Scope::to_string).collect();
    let token = format!("ww_{}", random_hex()?);
    let hash = Auth::hash(&token);
    let expires = wanted.expires.map(|span| crate::output::now().after(span));
    let mut stdout = std::io::stdout().lock();
    if json {
        let mut shown = json!({"token": token, "name": wanted.name, "sha256": hash, "scopes": scopes});
        if let Some(expires) = expires {
            shown["expires"] = json!(expires);
        }
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    writeln!(stdout, "{token}")?;
    stdout.flush()?;
    let scopes: Vec<String> = scopes.iter().map(|scope| format!("\"{scope}\"")).collect();
    let expires = expires.map(|expires| format!("\nexpires = \"{expires}\"")).unwrap_or_default();
    talk(&format!(
        "This token is shown only once. Send it as `Authorization: Bearer TOKEN`, or set WIGWAG_TOKEN for commands.\n\
         Add these lines to the server's wigwag.toml:\n\n\
         [[token]]\nname = \"{}\"\nsha256 = \"{hash}\"\nscopes = [{}]{expires}",
        wanted.name,
        scopes.join(", ")
    ));
    Ok(())
}

/// Returns 32 random bytes as hexadecimal text.
pub(crate) fn random_hex() -> Result<String, Failed> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failed::new(format!("the system's random number generator failed: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

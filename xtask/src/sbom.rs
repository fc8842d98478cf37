//! `cargo xtask sbom`: prints the bill of materials of a package, as CycloneDX.
//!
//! Based on `cargo metadata`, so that it describes this machine's build, and `Cargo.lock`, which has the checksums.
//! It omits development dependencies, which are in no binary, and includes those of build scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};

/// Prints the bill of materials of a package.
pub(crate) fn print(package: &str) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let target = format!("--filter-platform={}", host(&cargo)?);
    let metadata = output(Command::new(&cargo).args(["metadata", "--format-version=1", "--locked", &target]))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let lock = std::fs::read_to_string("Cargo.lock").map_err(|error| format!("Cargo.lock: {error}"))?;
    let bill = bill(&metadata, &checksums(&lock), package)?;
    writeln!(std::io::stdout().lock(), "{bill:#}").map_err(|error| error.to_string())
}

fn host(cargo: &str) -> Result<String, String> {
    let said = output(Command::new(cargo).args(["--version", "--verbose"]))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "cargo does not say what machine this is".into())
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Returns the checksums of a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
            line.map(|value| value.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>, package: &str) -> Result<Value, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let root = packages.iter().find(|(_, found)| found["name"] == package).map(|(id, _)| id.clone());
    let root = root.ok_or_else(|| format!("no package is called `{package}`"))?;
    let is_built = |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
    let mut reached = BTreeSet::new();
    let mut open = vec![root.clone()];
    while let Some(id) = open.pop() {
        if reached.insert(id.clone()) {
            let dependencies = nodes.get(&id).map(|node| list(&node["deps"])).unwrap_or_default();
            open.extend(dependencies.iter().filter(|one| is_built(one)).map(|one| text(&one["pkg"])));
        }
    }
    let component = |id: &String| {
        let package = &packages[id];
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": "library",
            "name": name,
            "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{"expression": text(&package["license"]).replace('/', " OR ")}],
        });
        if let Some(checksum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    };
    let mut own = component(&root);
    own["type"] = json!("application");
    let components: Vec<Value> = reached.iter().filter(|id| **id != root).map(component).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_has_what_is_built_and_nothing_of_the_tests() {
        let dependency = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let package = |name: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0"});
        let metadata = json!({
            "packages": [package("app"), package("used"), package("deeper"), package("tested"), package("other")],
            "resolve": {"nodes": [
                {"id": "app", "deps": [dependency("used", Value::Null), dependency("tested", json!("dev"))]},
                {"id": "used", "deps": [dependency("deeper", json!("build"))]},
            ]},
        });
        let lock = "[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n";
        let bill = bill(&metadata, &checksums(lock), "app").unwrap();
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["deeper", "used"]);
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "abc");
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["metadata"]["component"]["name"], "app");
        assert!(super::bill(&metadata, &BTreeMap::new(), "nobody").is_err());
    }
}

//! Credentials and settings as the AWS tools take them: environment first, then a profile in their files.
//!
//! `object_store` reads the environment, web identities, containers and the instance's role; profiles are
//! read here. Profiles that need a separate request are rejected by name instead of ignored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ini::Ini;
use object_store::StaticCredentialProvider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, AwsCredential};

use crate::{BucketSettings, Error, ErrorKind, Result};

/// Settings of one profile, from both files.
#[derive(Debug, Default)]
pub(super) struct Profile {
    name: String,
    settings: Vec<(String, String)>,
}

impl Profile {
    /// Reads the given profile, or `AWS_PROFILE`, or `default` if it exists.
    pub(super) fn load(asked: Option<&str>) -> Result<Self> {
        let named = asked.map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
        let home = std::env::home_dir().unwrap_or_default();
        let file = |name: &str, usual: &str| variable(name).map_or_else(|| home.join(usual), PathBuf::from);
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
        Self::from_files(named.as_deref(), &credentials, &file("AWS_CONFIG_FILE", ".aws/config"))
    }

    fn from_files(named: Option<&str>, credentials: &Path, config: &Path) -> Result<Self> {
        let name = named.unwrap_or("default");
        let mut profile = Self { name: name.to_owned(), settings: Vec::new() };
        let mut found = profile.read(credentials, name)?;
        found |= profile.read(config, &format!("profile {name}"))?;
        found |= name == "default" && profile.read(config, "default")?;
        if named.is_some() && !found {
            let what = format!("there is no profile `{name}` in `{}` or `{}`", credentials.display(), config.display());
            return Err(
                Error::new(ErrorKind::Denied, what).hint("check `AWS_PROFILE`, or run `aws configure --profile …`")
            );
        }
        Ok(profile)
    }

    fn read(&mut self, path: &Path, section: &str) -> Result<bool> {
        if !path.exists() {
            return Ok(false);
        }
        let file = Ini::load_from_file_noescape(path).map_err(|error| {
            Error::invalid(format!("cannot read `{}`: {error}", path.display())).hint("fix the file, or use another")
        })?;
        let Some(settings) = file.section(Some(section)) else {
            return Ok(false);
        };
        self.settings.extend(settings.iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        Ok(true)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Access key and secret of the profile.
    #[cfg(feature = "remote")]
    pub(super) fn keys(&self) -> Option<(String, String)> {
        let (id, secret) = (self.get("aws_access_key_id")?, self.get("aws_secret_access_key")?);
        Some((id.to_owned(), secret.to_owned()))
    }

    pub(super) fn endpoint(&self, environment: &Environment<'_>) -> Option<String> {
        let named = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let found = named.iter().find_map(|name| environment(name));
        found.or_else(|| self.get("endpoint_url").map(str::to_owned))
    }

    /// Adds settings that the environment lacks.
    pub(super) fn fill(
        &self,
        mut builder: AmazonS3Builder,
        asked: &BucketSettings,
        environment: &Environment<'_>,
    ) -> Result<AmazonS3Builder> {
        let from_environment = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| environment(name));
        let region = asked.region.clone().or(from_environment).or_else(|| self.get("region").map(str::to_owned));
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        if let Some((id, secret)) = &asked.keys {
            return Ok(with_keys(builder, id, secret, None));
        }
        let elsewhere = [
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ];
        // An explicitly named profile precedes the environment, as with the AWS tools.
        let by_environment = elsewhere.iter().any(|name| environment(name).is_some());
        if (by_environment && asked.profile.is_none()) || is_set(environment, "AWS_SKIP_SIGNATURE") {
            return Ok(builder);
        }
        if let (Some(id), Some(secret)) = (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            return Ok(with_keys(builder, id, secret, self.get("aws_session_token")));
        }
        for kind in ["sso_session", "sso_start_url", "role_arn", "credential_process"] {
            if self.get(kind).is_some() {
                let what =
                    format!("profile `{}` gets its credentials by `{kind}`, which wigwag does not support", self.name);
                let hint = format!(
                    "run `eval \"$(aws configure export-credentials --profile {} --format env)\"` first",
                    self.name
                );
                return Err(Error::new(ErrorKind::Denied, what).hint(hint));
            }
        }
        if is_set(environment, "AWS_EC2_METADATA_DISABLED") && builder.get_config_value(&Key::AccessKeyId).is_none() {
            return Err(Error::new(ErrorKind::Denied, "no credentials found for the bucket").hint(
                "set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or `AWS_PROFILE`; the machine's role is not asked, \
                 because `AWS_EC2_METADATA_DISABLED` is set",
            ));
        }
        Ok(builder)
    }
}

/// Exactly these, whatever session token the environment may hold.
fn with_keys(builder: AmazonS3Builder, id: &str, secret: &str, token: Option<&str>) -> AmazonS3Builder {
    let credential =
        AwsCredential { key_id: id.to_owned(), secret_key: secret.to_owned(), token: token.map(str::to_owned) };
    builder.with_credentials(Arc::new(StaticCredentialProvider::new(credential)))
}

/// Source of variables: the process's own, or a test's.
pub(super) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// An environment variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(super) fn is_set(environment: &Environment<'_>, name: &str) -> bool {
    environment(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile in one of the two files.
    fn profile(name: &str, credentials: &str, config: &str) -> Result<Profile> {
        let folder = tempfile::tempdir().expect("there is room for two small files");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("there is room for two small files");
            path
        };
        Profile::from_files(Some(name), &write("credentials", credentials), &write("config", config))
    }

    fn builder(profile: &Profile) -> Result<AmazonS3Builder> {
        profile.fill(AmazonS3Builder::new(), &BucketSettings::default(), &|_| None)
    }

    /// The keys that the built client would sign with.
    fn keys(builder: AmazonS3Builder) -> (String, String, Option<String>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = builder.with_bucket_name("b").build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(client.credentials().get_credential()).unwrap();
        (found.key_id.clone(), found.secret_key.clone(), found.token.clone())
    }

    const KEYS: &str =
        "[work]\naws_access_key_id = AKIA\naws_secret_access_key = shh/with=signs\naws_session_token=tok\n";

    #[test]
    fn a_profile_gives_keys_region_and_endpoint_from_both_files() {
        let config =
            "[default]\nregion = us-west-1\n[profile work]\nregion=eu-central-1\nendpoint_url = http://127.0.0.1:9\n";
        let profile = profile("work", KEYS, config).unwrap();
        let built = builder(&profile).unwrap();
        let get = |key: Key| built.get_config_value(&key);
        assert_eq!(get(Key::Region).as_deref(), Some("eu-central-1"));
        assert_eq!(profile.endpoint(&|_| None).as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(keys(built), ("AKIA".into(), "shh/with=signs".into(), Some("tok".into())));
    }

    #[test]
    fn keys_that_were_chosen_are_used_as_they_are_and_with_no_others_token() {
        let environment = |name: &str| (name == "AWS_ACCESS_KEY_ID").then(|| "FROM_ENV".to_owned());
        let with_token = || AmazonS3Builder::new().with_token("from the environment");
        let mut asked = BucketSettings { keys: Some(("id".into(), "s".into())), ..BucketSettings::default() };
        let built = Profile::default().fill(with_token(), &asked, &environment).unwrap();
        assert_eq!(keys(built), ("id".into(), "s".into(), None));

        asked.keys = None;
        asked.profile = Some("work".into());
        let named = profile("work", "[work]\naws_access_key_id=A\naws_secret_access_key=B\n", "").unwrap();
        assert_eq!(keys(named.fill(with_token(), &asked, &environment).unwrap()), ("A".into(), "B".into(), None));
    }

    #[test]
    fn the_environment_comes_before_the_profile() {
        let profile = profile("work", KEYS, "[profile work]\nregion=eu-central-1\n").unwrap();
        let environment = |name: &str| match name {
            "AWS_REGION" => Some("ap-south-1".to_owned()),
            "AWS_ACCESS_KEY_ID" => Some("FROM_ENV".to_owned()),
            _ => None,
        };
        let built = profile.fill(AmazonS3Builder::new(), &BucketSettings::default(), &environment).unwrap();
        assert_eq!(built.get_config_value(&Key::Region).as_deref(), Some("ap-south-1"));
        assert_eq!(built.get_config_value(&Key::AccessKeyId), None, "left to what reads the environment");
    }

    #[test]
    fn an_unusable_profile_is_rejected_by_name() {
        let missing = profile("play", KEYS, "").unwrap_err();
        assert!(missing.to_string().contains("no profile `play`"), "{missing}");
        let sso = profile("corp", "", "[profile corp]\nsso_session = x\nregion = eu-west-1\n").unwrap();
        let refused = builder(&sso).unwrap_err();
        assert!(refused.to_string().contains("`sso_session`, which wigwag does not support"), "{refused}");
        assert!(refused.advice().is_some_and(|hint| hint.contains("export-credentials --profile corp")));
        let broken = profile("work", "[work\nnonsense", "").unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::Invalid, "{broken}");
    }

    #[test]
    fn missing_credentials_are_reported_before_the_first_request() {
        let nobody = Profile::default();
        let environment = |name: &str| (name == "AWS_EC2_METADATA_DISABLED").then(|| "true".to_owned());
        let refused = nobody.fill(AmazonS3Builder::new(), &BucketSettings::default(), &environment).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.advice().is_some_and(|hint| hint.contains("AWS_ACCESS_KEY_ID")));
    }
}

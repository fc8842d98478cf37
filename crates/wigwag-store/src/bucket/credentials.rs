//! Credentials and settings as the AWS tools take them: environment first, then a profile in their files.
//!
//! `object_store` reads the environment, web identities, containers and the instance's role; profiles are
//! read here. Kinds of profile that need a call of their own are refused by name instead of passed over.

use std::path::PathBuf;

use ini::Ini;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};

use crate::{BucketSettings, Error, ErrorKind, Result};

/// What one profile says, from both files.
#[derive(Debug, Default)]
pub(super) struct Profile {
    name: String,
    settings: Vec<(String, String)>,
}

impl Profile {
    /// Reads the profile that was asked for, or `AWS_PROFILE`, or `default` if there is one.
    pub(super) fn load(asked: Option<&str>) -> Result<Self> {
        let named = asked.map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
        let name = named.clone().unwrap_or_else(|| "default".into());
        let home = std::env::home_dir().unwrap_or_default();
        let file = |name: &str, usual: &str| variable(name).map_or_else(|| home.join(usual), PathBuf::from);
        let (credentials, config) =
            (file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"), file("AWS_CONFIG_FILE", ".aws/config"));

        let mut profile = Self { name: name.clone(), settings: Vec::new() };
        let mut found = profile.read(&credentials, &name)?;
        found |= profile.read(&config, &format!("profile {name}"))?;
        found |= name == "default" && profile.read(&config, "default")?;
        if named.is_some() && !found {
            let what = format!("there is no profile `{name}` in `{}` or `{}`", credentials.display(), config.display());
            return Err(
                Error::new(ErrorKind::Denied, what).hint("check `AWS_PROFILE`, or run `aws configure --profile …`")
            );
        }
        Ok(profile)
    }

    fn read(&mut self, path: &std::path::Path, section: &str) -> Result<bool> {
        if !path.exists() {
            return Ok(false);
        }
        let file = Ini::load_from_file_noescape(path).map_err(|error| {
            Error::invalid(format!("cannot read `{}`: {error}", path.display())).hint("mend the file, or name another")
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

    pub(super) fn endpoint(&self) -> Option<String> {
        let from_environment = variable("AWS_ENDPOINT_URL_S3")
            .or_else(|| variable("AWS_ENDPOINT_URL"))
            .or_else(|| variable("AWS_ENDPOINT"));
        from_environment.or_else(|| self.get("endpoint_url").map(str::to_owned))
    }

    /// Gives the builder what the environment did not.
    pub(super) fn fill(&self, mut builder: AmazonS3Builder, asked: &BucketSettings) -> Result<AmazonS3Builder> {
        let from_environment = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| variable(name));
        let region = asked.region.clone().or(from_environment).or_else(|| self.get("region").map(str::to_owned));
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        if let Some((id, secret)) = &asked.keys {
            return Ok(builder.with_access_key_id(id).with_secret_access_key(secret));
        }
        let elsewhere = [
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ];
        if elsewhere.iter().any(|name| variable(name).is_some()) || flag("AWS_SKIP_SIGNATURE") {
            return Ok(builder);
        }
        if let (Some(id), Some(secret)) = (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
            return Ok(match self.get("aws_session_token") {
                Some(token) => builder.with_token(token),
                None => builder,
            });
        }
        for kind in ["sso_session", "sso_start_url", "role_arn", "credential_process"] {
            if self.get(kind).is_some() {
                let what =
                    format!("profile `{}` gets its credentials by `{kind}`, which wigwag does not do", self.name);
                let hint = format!(
                    "run `eval \"$(aws configure export-credentials --profile {} --format env)\"` first",
                    self.name
                );
                return Err(Error::new(ErrorKind::Denied, what).hint(hint));
            }
        }
        if flag("AWS_EC2_METADATA_DISABLED") && builder.get_config_value(&Key::AccessKeyId).is_none() {
            return Err(Error::new(ErrorKind::Denied, "there are no credentials for the bucket").hint(
                "set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or `AWS_PROFILE`; the machine's role is not asked, \
                 because `AWS_EC2_METADATA_DISABLED` is set",
            ));
        }
        Ok(builder)
    }
}

/// An environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(super) fn flag(name: &str) -> bool {
    variable(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

//! The files of `deploy/`: the example configuration, the unit, the manifests and the image.

mod defaults;
mod example;
mod files;
mod keys;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use endstop_gateway::Config;
use endstop_gateway::config::{SinkConfig, TeamConfig, UpstreamConfig};

use self::defaults::Defaults;
use self::example::{Example, Style, uncommented};
use self::keys::{Key, Sources, crates};
use crate::{Folder, stdout};

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}

fn configuration() -> Vec<Key> {
    // Tables that are named by the user are not among the defaults of the whole.
    let named = (SinkConfig::default(), TeamConfig::default(), UpstreamConfig::default());
    let sources = Sources::new(Defaults::new(&format!("{:?}", (Config::default(), named))));
    let keys = sources.keys_of("Config", &crates().join("endstop-gateway/src/config.rs"));
    keys.unwrap()
}

fn restart() -> Vec<&'static str> {
    endstop_gateway::restart_keys().collect()
}

/// A key without an explanation, or without a default or an example, is an error.
#[test]
fn the_example_has_every_key() {
    let (keys, restart) = (configuration(), restart());
    let example = Example::new(&keys, &restart, Style::Example).unwrap();
    expect_test::expect_file![repository("deploy/endstop.toml")].assert_eq(example.text());
    // Every key that needs a restart is a key.
    let names: Vec<String> = example
        .tables
        .iter()
        .flat_map(|(path, keys)| {
            let dot = if path.is_empty() { "" } else { "." };
            keys.iter().map(move |key| format!("{path}{dot}{}", key.name))
        })
        .collect();
    let unknown: Vec<&&str> =
        restart.iter().filter(|key| !names.iter().any(|name| name == *key)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The keys come from the source; these come from the parser.
#[test]
fn the_example_has_the_keys_that_the_parser_knows() {
    let (keys, restart) = (configuration(), restart());
    let example = Example::new(&keys, &restart, Style::Example).unwrap();
    assert!(example.tables.len() > 12, "{}", example.tables.len());
    for (path, keys) in &example.tables {
        let header = if path.is_empty() { String::new() } else { format!("[{path}]\n") };
        let error =
            Config::from_toml("t", &format!("{header}nobody_knows_this = 1\n")).unwrap_err();
        let error = error.to_string();
        let (_, known) =
            error.split_once("expected ").unwrap_or_else(|| unreachable!("{path}: {error}"));
        let known = known.split(';').next().unwrap();
        let known: BTreeSet<&str> = known.split('`').skip(1).step_by(2).collect();
        let ours = keys.iter().flat_map(|key| key.aliases.iter().chain([&key.name]));
        assert_eq!(known, ours.map(String::as_str).collect(), "[{path}]");
    }
}

/// Files, variables and folders that a configuration names.
struct Place {
    folder: Folder,
    variables: Vec<(String, String)>,
}

impl Place {
    fn new(name: &str) -> Self {
        Self { folder: Folder::new(name), variables: Vec::new() }
    }

    /// Moves a configuration into the folder, and makes what it names.
    fn settle(&mut self, toml: &str) -> String {
        let root = self.folder.0.display().to_string();
        let toml = ["/etc/endstop", "/var/lib/endstop", "/var/log/endstop"]
            .iter()
            .fold(toml.to_owned(), |text, path| text.replace(path, &root));
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        for line in toml.lines().filter(|line| !line.starts_with('#')) {
            let Some((key, value)) = line.split_once(" = ") else { continue };
            for text in value.split('"').skip(1).step_by(2) {
                if key.ends_with("_env") || key.ends_with("_envs") {
                    let url = ["store_env", "url_env"].contains(&key);
                    let secret = if url {
                        format!("sqlite:{root}/{text}.db")
                    } else {
                        format!("the-secret-of-{text}")
                    };
                    self.variables.push((text.to_owned(), secret));
                } else if key == "providers_file" {
                    self.folder.write(text, "[provider.openai.words]\nodd = \"cut\"\n");
                } else if let Some(name) = text.strip_prefix(&format!("{root}/")) {
                    let content = match (key, name) {
                        ("key", _) => made.signing_key.serialize_pem(),
                        (_, name) if name.ends_with(".pem") => made.cert.pem(),
                        _ => format!("the-secret-in-{name}"),
                    };
                    self.folder.write(name, content);
                }
            }
        }
        self.folder.write("endstop.toml", toml)
    }

    /// Runs `serve --check`, and returns what it prints.
    #[track_caller]
    fn check(&self, file: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_endstop"))
            .args(["serve", "--check", "--config", file])
            .env("ENDSTOP_DATA", &self.folder.0)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let text = stdout(&output);
        assert!(output.status.success(), "{error}");
        assert!(text.ends_with("the configuration is valid\n"), "{text}");
        text
    }
}

#[test]
fn the_example_is_valid() {
    let mut place = Place::new("deploy-example");
    let file = place.settle(&text_of("deploy/endstop.toml"));
    let usual = place.folder.write("usual.toml", "");
    assert_eq!(place.check(&file), place.check(&usual), "it shows the defaults");
}

#[test]
fn the_example_is_valid_with_every_line_in_force() {
    let mut place = Place::new("deploy-every-line");
    let file = place.settle(&uncommented(&text_of("deploy/endstop.toml")));
    let text = place.check(&file);
    assert!(text.contains("sink    lines: jsonl:") && text.contains("/llm/{region}"), "{text}");
    let (keys, restart) = (configuration(), restart());
    let second = Example::new(&keys, &restart, Style::Second).unwrap();
    let mut place = Place::new("deploy-every-other-line");
    let file = place.settle(second.text());
    let text = place.check(&file);
    assert!(text.contains("sink    lines: sqlite:"), "{text}");
}

//! The unit, the manifests, the image, the rollout, and the pages about them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use endstop_gateway::Config;
use saphyr::{LoadableYamlNode as _, Yaml};

use super::{Place, repository, text_of};
use crate::serve::Running;
use crate::{endstop, stdout};

/// Seconds that a gateway with these settings may take to end, as it tells systemd.
fn seconds_to_end(config: &Config) -> i64 {
    i64::try_from(config.limits.drain.as_secs()).unwrap() + 10
}

#[test]
fn the_unit_waits_for_the_drain_and_starts_the_gateway() {
    let unit = text_of("deploy/endstop.service");
    let setting = |name: &str| {
        unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap()
    };
    assert_eq!(setting("Type"), "notify");
    assert!(
        setting("TimeoutStopSec").parse::<i64>().unwrap() >= seconds_to_end(&Config::default())
    );
    // Its state is where the gateway keeps its data.
    assert_eq!(
        setting("Environment"),
        format!("ENDSTOP_DATA=/var/lib/{}", setting("StateDirectory"))
    );
    let mut place = Place::new("deploy-unit");
    let file = place.settle(&text_of("deploy/endstop.toml"));
    let start = setting("ExecStart").replace("/etc/endstop/endstop.toml", &file);
    let words: Vec<&str> = start.split(' ').skip(1).chain(["--check"]).collect();
    let text = stdout(&endstop(&words, b""));
    assert!(text.ends_with("the configuration is valid\n"), "{text}");
}

#[test]
fn the_image_has_a_user_without_rights_and_starts_the_gateway() {
    let image = text_of("deploy/Dockerfile");
    let (build, last) = image.split_once("\nFROM scratch\n").unwrap();
    let cargo = text_of("Cargo.toml");
    let version = cargo.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    assert!(build.contains(&format!("FROM rust:{}-", version.trim_matches('"'))), "{build}");
    let after = |name: &str| last.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    assert_ne!(after("USER ").split(':').next(), Some("0"));
    let entry: Vec<String> = serde_json::from_str(after("ENTRYPOINT ")).unwrap();
    assert!(last.contains(&format!("COPY --from=build /endstop {}\n", entry[0])));
    assert!(last.contains(&format!("ENV ENDSTOP_DATA={}\n", after("VOLUME "))));
    let words: Vec<String> = serde_json::from_str(after("CMD ")).unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--check"]).collect();
    let text = stdout(&endstop(&words, b""));
    assert!(text.starts_with("listen  0.0.0.0:4100\n"), "{text}");
}

/// Returns the documents of a manifest of this kind.
fn of_kind<'a>(documents: &'a [Yaml<'a>], kind: &str) -> &'a Yaml<'a> {
    documents.iter().find(|document| document["kind"].as_str() == Some(kind)).unwrap()
}

#[test]
fn the_manifests_fit_the_gateway() {
    let text = text_of("deploy/kubernetes.yaml");
    let documents = Yaml::load_from_str(&text).unwrap();
    let toml = of_kind(&documents, "ConfigMap")["data"]["endstop.toml"].as_str().unwrap();
    let config = Config::from_toml("endstop.toml", toml).unwrap();
    let pod = &of_kind(&documents, "StatefulSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];

    let grace = pod["terminationGracePeriodSeconds"].as_integer().unwrap();
    let before = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_integer().unwrap();
    assert!(grace >= before + seconds_to_end(&config), "{grace} {before}");

    let port = |name: &str| {
        let ports = container["ports"].as_vec().unwrap().iter();
        let mut ports = ports.filter(|port| port["name"].as_str() == Some(name));
        ports.next().unwrap()["containerPort"].as_integer().unwrap()
    };
    assert_eq!(port("http"), i64::from(config.listen.port()));
    assert_eq!(port("admin"), i64::from(config.admin.unwrap().port()));
    let service = of_kind(&documents, "Service");
    assert_eq!(service["spec"]["ports"][0]["targetPort"].as_str(), Some("http"));

    // The variables of the configuration are those of the container.
    let given = container["env"].as_vec().unwrap().iter();
    let given: BTreeSet<&str> = given.map(|one| one["name"].as_str().unwrap()).collect();
    let asked = toml.lines().filter_map(|line| line.split_once("_env = "));
    let asked: BTreeSet<&str> = asked.map(|(_, name)| name.trim_matches('"')).collect();
    assert_eq!(given, asked);
    let mounts = container["volumeMounts"].as_vec().unwrap().iter();
    let mut mounts = mounts.map(|mount| mount["mountPath"].as_str().unwrap());
    let data = config.data.unwrap();
    assert!(mounts.any(|path| Path::new(path) == data));

    // A gateway with this configuration answers the probes, without a token.
    let mut place = Place::new("deploy-kubernetes");
    let file = place.settle(toml);
    let text = place.check(&file);
    assert!(text.contains("mode    observe"), "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_endstop"));
    command.envs(place.variables.iter().map(|(name, value)| (name, value)));
    let local = std::fs::read_to_string(&file).unwrap();
    let local = local.replace("0.0.0.0:4100", "127.0.0.1:0").replace("0.0.0.0:4101", "127.0.0.1:0");
    std::fs::write(&file, local.replace("log = \"json\"", "")).unwrap();
    let mut running = Running::start_in(&mut command, &file);
    let line = running.until("endings at http://");
    let admin = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        assert_eq!(container[probe]["httpGet"]["port"].as_str(), Some("admin"));
        let answer = Running::get(admin, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{probe}: {answer}");
    }
    assert!(Running::get(admin, "/endstop/v1/endings").starts_with("HTTP/1.1 401"));
}

/// Starts simulated providers and a gateway, goes through every step, and ends them.
#[test]
fn every_step_of_the_rollout_works() {
    let output = Command::new(repository("deploy/rollout/run"))
        .arg(env!("CARGO_BIN_EXE_endstop"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{error}");
    assert!(text.ends_with("its record has all 28 responses\n"), "{text}");
}

#[test]
fn the_guide_has_the_stages_of_the_rollout() {
    let guide = text_of("docs/rollout.md");
    for stage in ["observe", "one-team", "guard"] {
        let toml = text_of(&format!("deploy/rollout/{stage}.toml"));
        assert!(guide.contains(&format!("```toml\n{toml}```\n")), "{stage}.toml");
    }
}

/// Returns the first cells of the tables in a part of a page.
fn first_cells<'a>(page: &'a str, part: &str) -> Vec<&'a str> {
    let (_, text) = page.split_once(&format!("\n## {part}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    rows.filter(|cell| *cell != "code").collect()
}

#[test]
fn the_page_has_every_error_code() {
    let page = text_of("docs/operating.md");
    let told: Vec<&str> =
        first_cells(&page, "Error codes").iter().map(|cell| cell.trim_matches('`')).collect();
    let mut known = BTreeSet::new();
    let mut folders = vec![repository("crates/endstop-gateway/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("\nmod tests {").next().unwrap();
            let quoted = code.split('"').filter(|text| text.starts_with("endstop_"));
            let is_code = |text: &&str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            known.extend(quoted.filter(is_code).map(str::to_owned));
        }
    }
    assert!(known.len() > 25, "{known:?}");
    assert_eq!(told.iter().map(|code| (*code).to_owned()).collect::<BTreeSet<_>>(), known);
    assert_eq!(told.len(), known.len(), "each is told once");
}

#[test]
fn the_page_has_every_exit_code() {
    let page = text_of("docs/operating.md");
    let told: Vec<u8> =
        first_cells(&page, "Exit codes").iter().map(|cell| cell.parse().unwrap()).collect();
    let help = stdout(&endstop(&["--help"], b""));
    let (_, help) = help.split_once("Exit codes:").unwrap();
    // A code is a number before two spaces, or after `; `.
    let mut known: Vec<u8> = Vec::new();
    for line in help.lines() {
        let words: Vec<&str> = line.split("  ").collect();
        let numbers = words.iter().flat_map(|words| words.split("; ")).map(str::trim);
        known.extend(numbers.filter_map(|word| word.split(' ').next_back()?.parse::<u8>().ok()));
    }
    known.sort_unstable();
    assert_eq!(told, known);
}

//! Reload: what a new configuration changes in a running gateway, and what needs a restart.

use std::collections::HashMap;

use crate::callers::Callers;
use crate::config::{Config, RecordConfig, Secret};
use crate::error::Error;
use crate::gateway::check_addresses;
use crate::settings::{Settings, Shared};
use crate::watch::recording::{check_record, check_store};

/// Outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that changed and are in force.
    pub changed: Vec<&'static str>,
    /// Settings that changed in the file and stay as they were until a restart.
    pub needs_restart: Vec<&'static str>,
}

/// Replaces the settings for new requests and connections. An error leaves everything as it was.
pub(crate) fn reload(shared: &Shared, mut config: Config) -> Result<Reloaded, Error> {
    let old = shared.settings();
    let written = config.clone();
    let needs_restart = keep_fixed(&old.config, &mut config)?;
    check_restart(written, &needs_restart)?;
    let new = Settings::new(config)?;
    let changed = changes(&old, &new);
    shared.replace(new);
    Ok(Reloaded { changed, needs_restart })
}

/// A setting that cannot change while the gateway runs.
struct Fixed {
    /// Its name in messages: its key, or that of a table that it stands for.
    name: &'static str,
    /// Keys of the configuration that belong to it besides its name.
    more: &'static [&'static str],
    differs: fn(&Config, &Config) -> Result<bool, Error>,
    /// Gives the second the value of the first.
    keep: fn(&Config, &mut Config),
}

static FIXED: &[Fixed] = &[
    Fixed {
        name: "listen",
        more: &[],
        differs: |old, new| Ok(old.listen != new.listen),
        keep: |old, new| new.listen = old.listen,
    },
    Fixed {
        name: "admin",
        more: &[],
        differs: |old, new| Ok(old.admin != new.admin),
        keep: |old, new| new.admin = old.admin,
    },
    Fixed {
        name: "data",
        more: &[],
        differs: |old, new| Ok(old.data != new.data),
        keep: |old, new| new.data.clone_from(&old.data),
    },
    Fixed {
        name: "store",
        more: &["store_env"],
        differs: |old, new| Ok(old.store()? != new.store()?),
        keep: |old, new| {
            new.store.clone_from(&old.store);
            new.store_env.clone_from(&old.store_env);
        },
    },
    Fixed {
        name: "record.when_full",
        more: &[],
        differs: |old, new| Ok(old.record.when_full != new.record.when_full),
        keep: |old, new| new.record.when_full = old.record.when_full,
    },
    Fixed {
        name: "record.spool_bytes",
        more: &[],
        differs: |old, new| Ok(old.record.spool_bytes != new.record.spool_bytes),
        keep: |old, new| new.record.spool_bytes = old.record.spool_bytes,
    },
    Fixed {
        name: "record.keep",
        more: &[],
        differs: |old, new| Ok(old.record.keep != new.record.keep),
        keep: |old, new| new.record.keep = old.record.keep,
    },
    Fixed {
        name: "sinks",
        more: &[],
        differs: |old, new| Ok(old.sinks != new.sinks || old.sinks()? != new.sinks()?),
        keep: |old, new| new.sinks.clone_from(&old.sinks),
    },
];

/// Returns the keys of the configuration that need a restart. A table stands for all its keys.
pub fn restart_keys() -> impl Iterator<Item = &'static str> {
    FIXED.iter().flat_map(|fixed| fixed.more.iter().copied().chain([fixed.name]))
}

/// Checks that a restart with this configuration would succeed, as far as it differs.
fn check_restart(written: Config, needs_restart: &[&str]) -> Result<(), Error> {
    if needs_restart.is_empty() {
        return Ok(());
    }
    check_addresses(&written)?;
    check_record(&written)?;
    let written = Settings::check(written)?.config;
    // A store that is in use need not be asked again.
    if !needs_restart.iter().any(|name| ["store", "sinks", "data"].contains(name)) {
        return Ok(());
    }
    // On a thread of its own: drivers may not wait on those of a runtime.
    let checked = std::thread::scope(|scope| scope.spawn(|| check_store(&written)).join());
    checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(drop)
}

/// Gives the settings that cannot change their old values, and returns the names of those that differ.
fn keep_fixed(old: &Config, new: &mut Config) -> Result<Vec<&'static str>, Error> {
    let mut differing = Vec::new();
    for fixed in FIXED {
        if (fixed.differs)(old, new)? {
            differing.push(fixed.name);
        }
    }
    FIXED.iter().for_each(|fixed| (fixed.keep)(old, new));
    Ok(differing)
}

/// Returns the names of the settings that differ.
fn changes(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let in_file = described(&old.config).into_iter().zip(described(&new.config));
    let in_file = in_file.filter(|(old, new)| old != new).map(|((name, _), _)| name);
    // Files whose names stay may hold something else.
    let keys = |settings: &Settings| -> Vec<(String, Option<Secret>)> {
        settings
            .routes
            .iter()
            .map(|upstream| (upstream.name.clone(), upstream.key.clone()))
            .collect()
    };
    let (old_keys, new_keys) = (keys(old), keys(new));
    let same_keys = old_keys.len() == new_keys.len()
        && old_keys.iter().zip(&new_keys).all(|((old_name, old), (new_name, new))| {
            old_name == new_name && is_same(old.as_ref(), new.as_ref())
        });
    let in_files = [
        ("access_token", is_same(old.access_token.as_ref(), new.access_token.as_ref())),
        ("admin_token", is_same(old.admin_token.as_ref(), new.admin_token.as_ref())),
        ("tls", old.tls == new.tls),
        ("extra_ca", old.extra_ca == new.extra_ca),
        ("upstreams", same_keys),
        ("record", key_id(old) == key_id(new)),
        ("teams", teams(old) == teams(new)),
    ];
    let in_files = in_files.into_iter().filter_map(|(name, same)| (!same).then_some(name));
    let mut names: Vec<&str> = in_file.chain(in_files).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the id of a key, which differs if the secret of ids does.
fn key_id(settings: &Settings) -> Option<String> {
    settings.callers.as_ref().map(|callers| callers.key_id("any"))
}

fn teams(settings: &Settings) -> Option<&HashMap<String, String>> {
    settings.callers.as_ref().map(Callers::teams)
}

fn is_same(old: Option<&Secret>, new: Option<&Secret>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => old.is(new.expose()),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Returns each setting that can change, in a form that can be compared. A new field of the
/// configuration does not compile until it is either here or in [`FIXED`].
fn described(config: &Config) -> Vec<(&'static str, String)> {
    let Config {
        listen: _,
        admin: _,
        mode,
        tool_calls,
        allow_looser,
        heartbeat,
        hosts,
        access_token_env,
        access_token_file,
        require_token,
        only,
        admin_token_env,
        admin_token_file,
        extra_ca,
        log,
        log_error_messages,
        keep,
        store: _,
        store_env: _,
        data: _,
        record,
        sinks: _,
        teams,
        tls,
        limits,
        upstreams,
        providers_file: _,
        registry,
        policy,
        agent: _,
        based_on: _,
        fallback_models: _,
        providers: _,
        rules: _,
        wording: _,
        prices: _,
    } = config;
    let RecordConfig {
        team_header,
        ask_usage,
        when_full: _,
        spool_bytes: _,
        keep: _,
        key_secret_env,
        key_secret_file,
    } = record;
    let record = (team_header, ask_usage, key_secret_env, key_secret_file);
    vec![
        ("mode", format!("{mode:?}")),
        ("tool_calls", format!("{tool_calls:?}")),
        ("allow_looser", format!("{allow_looser:?}")),
        ("heartbeat", format!("{heartbeat:?}")),
        ("hosts", format!("{hosts:?}")),
        ("access_token", format!("{access_token_env:?} {access_token_file:?}")),
        ("require_token", format!("{require_token:?}")),
        ("only", format!("{only:?}")),
        ("admin_token", format!("{admin_token_env:?} {admin_token_file:?}")),
        ("extra_ca", format!("{extra_ca:?}")),
        ("log", format!("{log:?}")),
        ("log_error_messages", format!("{log_error_messages:?}")),
        ("keep", format!("{keep:?}")),
        ("record", format!("{record:?}")),
        ("teams", format!("{teams:?}")),
        ("tls", format!("{tls:?}")),
        ("limits", format!("{limits:?}")),
        ("upstreams", format!("{upstreams:?}")),
        ("provider", format!("{registry:?}")),
        ("policy", format!("{policy:?}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Log;

    fn shared(toml: &str) -> Shared {
        Shared::new(Settings::new(config(toml)).unwrap()).unwrap()
    }

    fn config(toml: &str) -> Config {
        Config::from_toml("x.toml", toml).unwrap()
    }

    #[test]
    fn each_change_is_named_and_in_force() {
        let shared = shared("");
        let reloaded = reload(&shared, config("")).unwrap();
        assert_eq!(reloaded, Reloaded::default());
        let all = "mode = 'observe'\ntool_calls = 'hold'\nallow_looser = true\nheartbeat = '9s'\n\
            log = 'json'\nlog_error_messages = true\nkeep = 5\n\
            [record]\nteam_header = true\n[teams.a]\nkey_ids = ['k_1']\n[limits]\nidle = '9s'\n\
            [upstreams.mine]\nlike = 'openai'\nbase_url = 'http://127.0.0.1:1'\n\
            [provider.openai.words]\nodd = 'cut'\n[agent]\ncontinuation_max_attempts = 1\n";
        let reloaded = reload(&shared, config(all)).unwrap();
        let names = [
            "allow_looser",
            "heartbeat",
            "keep",
            "limits",
            "log",
            "log_error_messages",
            "mode",
            "policy",
            "provider",
            "record",
            "teams",
            "tool_calls",
            "upstreams",
        ];
        assert_eq!((&*reloaded.changed, reloaded.needs_restart.len()), (&names[..], 0));
        assert_eq!(shared.settings().config.log, Log::Json);
    }

    #[test]
    fn settings_that_need_a_restart_are_named_and_the_others_apply() {
        let shared = shared("keep = 1");
        let file = "listen = '127.0.0.1:1'\nadmin = 'off'\nstore = 'sqlite::memory:'\ndata = '/x'\n\
            keep = 2\n[record]\nspool_bytes = 5\nkeep = '1d'\nwhen_full = 'forward'\n\
            [sinks.lines]\nurl = 'jsonl:/x'\n";
        let reloaded = reload(&shared, config(file)).unwrap();
        assert_eq!(reloaded.changed, ["keep"]);
        let names = [
            "listen",
            "admin",
            "data",
            "store",
            "record.when_full",
            "record.spool_bytes",
            "record.keep",
            "sinks",
        ];
        assert_eq!(reloaded.needs_restart, names);
        let config = &shared.settings().config;
        assert_eq!((config.listen, config.keep), (Config::default().listen, 2));
        assert_eq!((&config.store, &config.data), (&None, &None));
    }

    /// A restart with the file would fail, so it is not taken.
    #[test]
    fn settings_that_would_stop_a_restart_are_refused() {
        let shared = shared("store = 'off'\nkeep = 1");
        for (file, wrong) in [
            ("store = 'nonsense:'", "nonsense:"),
            ("store = 'sqlite:/nonexistent/a/b.db'", "/nonexistent/a/b.db"),
            ("store = 'sqlite:/'", "store: / is a directory"),
            ("store = 'off'\n[sinks.x]\nurl = 'jsonl:/x'", "sinks.x: "),
            ("store = 'off'\nadmin = '0.0.0.0:4101'", "admin listener 0.0.0.0:4101"),
            (
                "store = 'off'\nlisten = '127.0.0.1:4'\nadmin = '127.0.0.1:4'",
                "also the address of `listen`",
            ),
        ] {
            let written = config(&format!("keep = 2\n{file}"));
            let error = reload(&shared, written.clone()).unwrap_err().to_string();
            assert!(error.contains(wrong), "{file}: {error}");
            let checked = crate::Gateway::check(written).unwrap_err().to_string();
            assert_eq!(checked, error, "{file}");
            assert_eq!(shared.settings().config.keep, 1, "{file}");
        }
    }

    #[test]
    fn certificates_in_a_file_that_keeps_its_name_are_a_change() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = || {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
            std::fs::write(file.path(), made.cert.pem()).unwrap();
        };
        write();
        let toml = format!("extra_ca = '{}'\n", file.path().display());
        let shared = shared(&toml);
        assert_eq!(reload(&shared, config(&toml)).unwrap(), Reloaded::default());
        write();
        assert_eq!(reload(&shared, config(&toml)).unwrap().changed, ["extra_ca"]);
    }

    #[test]
    fn a_token_in_a_file_that_keeps_its_name_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "first-token-of-all").unwrap();
        let toml = format!("admin_token_file = '{}'\n", token.display());
        let shared = shared(&toml);
        assert_eq!(reload(&shared, config(&toml)).unwrap(), Reloaded::default());
        std::fs::write(&token, "second-token-of-all").unwrap();
        assert_eq!(reload(&shared, config(&toml)).unwrap().changed, ["admin_token"]);
        std::fs::remove_file(&token).unwrap();
        reload(&shared, config(&toml)).unwrap_err();
        let settings = shared.settings();
        assert!(settings.admin_token.as_ref().unwrap().is("second-token-of-all"));
    }
}

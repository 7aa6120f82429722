//! `endstop dialects`: lists every provider, wire and finish reason in the code.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use endstop::dialect::Framing;
use endstop::dialect::{At, ErrorPattern};
use endstop::dialect::{Proof, Words};
use endstop::provider::{self, Auth, Echo, Prefill, Profile, Provider, Resume, ResumeRule, Role};
use endstop::provider::{SdkUrl, Setting};
use endstop::provider::{Version, VersionAt};
use endstop::vocabulary::Vocabulary;
use endstop::{FaultKind, Reason};
use serde_json::{Value, json};

/// List every provider, its wires and the meaning of its finish reasons
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop dialects | grep frobnicated
  endstop dialects --json | jq '.[] | select(.id == \"mistral\")'
  endstop dialects --markdown --out docs/providers")]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Directory to write the Markdown to, one file per provider
    #[arg(long, value_name = "DIR", requires = "markdown")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(folder) = &args.out {
        write_pages(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = if args.json {
        let all: Vec<Value> =
            provider::ALL.iter().map(|provider| provider_json(provider)).collect();
        serde_json::to_string_pretty(&all)?
    } else if args.markdown {
        let pages: Vec<String> = provider::ALL.iter().map(|provider| page(provider)).collect();
        format!("{}\n{}", index(), pages.join("\n"))
    } else {
        lines()
    };
    writeln!(io::stdout(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns one line per finish reason: provider, dialect, field, value, reason, stored value.
fn lines() -> String {
    let mut text = String::new();
    for provider in provider::ALL {
        for profile in provider.wires() {
            for (field, word, reason) in words(profile) {
                let stored = Vocabulary::FinishReason.spell(reason);
                let _ = writeln!(
                    text,
                    "{:<18} {:<20} {field:<26} {word:<30} {:<20} {stored}",
                    provider.id,
                    profile.dialect.id,
                    reason.name()
                );
            }
        }
    }
    text
}

/// Returns the finish reasons of a wire, its own before the dialect's.
fn words(profile: &Profile) -> Vec<(&'static str, &'static str, Reason)> {
    let tables = profile.words.iter().chain(profile.dialect.words);
    tables
        .flat_map(|table: &'static Words| {
            table.rows.iter().map(|(word, reason)| (table.field, *word, *reason))
        })
        .collect()
}

fn error_patterns(profile: &Profile) -> impl Iterator<Item = &'static ErrorPattern> {
    profile.error_patterns.iter().chain(profile.dialect.error_patterns)
}

fn provider_json(provider: &Provider) -> Value {
    let wires: Vec<Value> = provider.wires().map(wire_json).collect();
    json!({
        "id": provider.id,
        "title": provider.title,
        "route": provider.route,
        "aliases": provider.aliases,
        "hosts": provider.hosts,
        "base_url": provider.base_url,
        "auth": auth(provider.auth),
        "key_variables": provider.key_variables,
        "sdk_urls": provider.sdk_urls.iter().map(sdk_url_json).collect::<Vec<_>>(),
        "source": provider.source,
        "wires": wires,
    })
}

fn sdk_url_json(sdk_url: &SdkUrl) -> Value {
    let (kind, name) = match sdk_url.setting {
        Setting::Variable(name) => ("variable", name),
        Setting::Argument(name) => ("argument", name),
    };
    json!({kind: name, "path": sdk_url.path, "sdks": sdk_url.sdks})
}

fn wire_json(profile: &Profile) -> Value {
    let words: Vec<Value> = words(profile)
        .into_iter()
        .map(|(field, word, reason)| {
            json!({"field": field, "word": word, "reason": reason, "finish_reason": Vocabulary::FinishReason.spell(reason)})
        })
        .collect();
    let error_patterns: Vec<Value> = error_patterns(profile)
        .map(|pattern| json!({"at": place(pattern.at), "is": pattern.is, "kind": pattern.kind}))
        .collect();
    json!({
        "dialect": profile.dialect.id,
        "paths": profile.paths,
        "framing": framing(profile.framing),
        "proof": proof(profile.proof),
        "caps": profile.caps,
        "usage": profile.dialect.usage,
        "words": words,
        "errors": error_patterns,
        "resume": profile.resume.iter().map(resume_rule).collect::<Vec<_>>(),
        "capabilities": {
            "streams": profile.capabilities.streams,
            "tools": profile.capabilities.tools,
            "choices": profile.capabilities.choices,
            "usage_in_streams": profile.capabilities.usage_in_streams,
        },
        "lies_at_cap": profile.quirks.lies_at_cap,
        "reasoning_beside_output": profile.quirks.reasoning_beside_output,
        "versions": profile.versions.iter().map(version_json).collect::<Vec<_>>(),
        "notes": profile.notes,
        "source": profile.dialect.source,
    })
}

fn write_pages(folder: &Path) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    write("README.md", &index())?;
    for provider in provider::ALL {
        write(&format!("{}.md", provider.id), &page(provider))?;
    }
    Ok(())
}

fn index() -> String {
    let mut text = "# Providers\n\nGenerated by `endstop dialects --markdown --out docs/providers`; a test checks it.\n\n".to_owned();
    text.push_str("| provider | wires | end-of-stream signal |\n|---|---|---|\n");
    for provider in provider::ALL {
        let wires: Vec<&str> = provider.wires().map(|profile| profile.dialect.id).collect();
        let _ = writeln!(
            text,
            "| [{}]({}.md) | {} | {} |",
            provider.title,
            provider.id,
            wires.join(", "),
            proof(provider.main.proof)
        );
    }
    text
}

fn page(provider: &Provider) -> String {
    let mut text = format!("# {}\n\n", provider.title);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "- {name}: {value}");
        }
    };
    row("id", code(provider.id));
    row("aliases", list(provider.aliases));
    row("route", code(provider.route));
    row("hosts", list(provider.hosts));
    row(
        "base URL",
        Some(provider.base_url).filter(|url| !url.is_empty()).map(code).unwrap_or_default(),
    );
    row("auth", auth(provider.auth));
    row("API key from", list(provider.key_variables));
    for sdk_url in provider.sdk_urls {
        row("SDKs at the gateway", sdk_url_in_words(provider, sdk_url));
    }
    row("source", provider.source.to_owned());
    for profile in provider.wires() {
        text.push_str(&wire_section(profile));
    }
    text
}

fn sdk_url_in_words(provider: &Provider, sdk_url: &SdkUrl) -> String {
    let setting = match sdk_url.setting {
        Setting::Variable(name) => format!("variable `{name}`"),
        Setting::Argument(name) => format!("argument `{name}`"),
    };
    let path = crate::env::path(provider, sdk_url);
    format!("{setting} with the path `{path}` ({})", sdk_url.sdks.join(", "))
}

fn wire_section(profile: &Profile) -> String {
    let mut text = format!("\n## {}\n\n", profile.dialect.id);
    let _ = writeln!(text, "- paths: {}", list(profile.paths));
    let _ = writeln!(
        text,
        "- framing: {}; end-of-stream signal: {}",
        framing(profile.framing),
        proof(profile.proof)
    );
    let _ = writeln!(
        text,
        "- output token limit: {}; usage: {}",
        list(profile.caps),
        list(profile.dialect.usage)
    );
    for rule in profile.resume {
        let _ = writeln!(text, "- resume {}", resume_rule(rule));
    }
    if profile.quirks.lies_at_cap {
        text.push_str(
            "- reports a natural stop when the output token limit truncated the answer\n",
        );
    }
    if profile.quirks.reasoning_beside_output {
        text.push_str("- output tokens exclude reasoning tokens\n");
    }
    for version in profile.versions {
        let _ = writeln!(text, "- {}: {}", version_in_words(version), version.note);
    }
    for note in profile.notes {
        let _ = writeln!(text, "- {note}");
    }
    text.push_str("\n| field | value | reason | `finish_reason` |\n|---|---|---|---|\n");
    for (field, word, reason) in words(profile) {
        let stored = Vocabulary::FinishReason.spell(reason);
        let _ = writeln!(text, "| `{field}` | `{word}` | {} | `{stored}` |", reason.name());
    }
    let error_patterns: Vec<&ErrorPattern> = error_patterns(profile).collect();
    if !error_patterns.is_empty() {
        text.push_str("\n| error | means |\n|---|---|\n");
    }
    for pattern in error_patterns {
        let _ =
            writeln!(text, "| {} `{}` | {} |", place(pattern.at), pattern.is, kind(pattern.kind));
    }
    text
}

fn version_json(version: &Version) -> Value {
    let (at, name) = match version.at {
        VersionAt::Header(name) => ("header", Some(name)),
        VersionAt::Query(name) => ("query", Some(name)),
        VersionAt::Path => ("path", None),
        _ => ("other", None),
    };
    json!({"at": at, "name": name, "note": version.note})
}

fn version_in_words(version: &Version) -> String {
    match version.at {
        VersionAt::Header(name) => format!("API version in the header `{name}`"),
        VersionAt::Query(name) => format!("API version in the query parameter `{name}`"),
        VersionAt::Path => "API version in the path".to_owned(),
        _ => "API version".to_owned(),
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn list(texts: &[&str]) -> String {
    texts.iter().map(|text| code(text)).collect::<Vec<_>>().join(", ")
}

fn kind(kind: FaultKind) -> String {
    serde_json::to_value(kind)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn place(at: At) -> &'static str {
    match at {
        At::Name => "name",
        At::Message => "message contains",
        At::Class => "class",
        At::Status => "HTTP status",
        _ => "other",
    }
}

fn framing(framing: Framing) -> &'static str {
    match framing {
        Framing::Sse => "server-sent events",
        Framing::Lines => "JSON lines",
        Framing::Array => "JSON array",
        Framing::Aws => "AWS event stream",
        Framing::AwsChunks => "AWS event stream around base64",
        _ => "other",
    }
}

fn proof(proof: Proof) -> String {
    match proof {
        Proof::Marker(marker) => format!("the marker `{marker}`"),
        Proof::Event => "an event".to_owned(),
        Proof::Word => "a finish reason for every choice, then the end of the body".to_owned(),
        Proof::Silent => "none".to_owned(),
    }
}

fn auth(auth: Auth) -> String {
    match auth {
        Auth::Bearer => "bearer key".to_owned(),
        Auth::Header(name) => format!("header `{name}`"),
        Auth::HeaderOrQuery(header, query) => format!("header `{header}` or query `{query}`"),
        Auth::SigV4 { .. } => "AWS signature (version 4) or bearer key".to_owned(),
        Auth::Open => "none".to_owned(),
    }
}

fn resume_rule(rule: &ResumeRule) -> String {
    let whom = if rule.models.is_empty() { "other models".to_owned() } else { list(rule.models) };
    let how = match rule.how {
        Resume::Prefill(prefill) => prefill_in_words(prefill),
        Resume::Token(token) => format!("with the provider's token in `{}`", token.field),
        Resume::Hint(Role::System) => "with a hint in a system message".to_owned(),
        Resume::Hint(Role::Developer) => "with a hint in a developer message".to_owned(),
        Resume::Hint(Role::User) => "with a hint in a user message".to_owned(),
        Resume::Hint(_) | _ => "in another way".to_owned(),
    };
    format!("{whom}: {how}")
}

fn prefill_in_words(prefill: Prefill) -> String {
    let mut text = "with a final assistant message".to_owned();
    if let Some(flag) = prefill.message_flag {
        let _ = write!(text, " that sets `{flag}`");
    }
    for (flag, value) in prefill.request_flags {
        let _ = write!(text, ", `{flag}: {value}`");
    }
    if let Some(url) = prefill.base_url {
        let _ = write!(text, ", at `{url}`");
    }
    match prefill.echoes {
        Echo::Always => text.push_str("; the reply repeats it"),
        Echo::Plain => text.push_str("; a plain reply repeats it"),
        Echo::Never | _ => {}
    }
    text
}

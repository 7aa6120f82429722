//! Agents: the settings that point them at the gateway.

/// An agent and its settings, in lines. `{url}` stands for the URL of the gateway.
struct Agent {
    name: &'static str,
    settings: &'static [&'static str],
}

const AGENTS: &[Agent] = &[
    Agent { name: "Claude Code", settings: &["reads ANTHROPIC_BASE_URL"] },
    Agent {
        name: "Codex",
        settings: &[
            "does not read OPENAI_BASE_URL; write to ~/.codex/config.toml:",
            "  model_provider = \"endstop\"",
            "  [model_providers.endstop]",
            "  name = \"endstop\"",
            "  base_url = \"{url}/openai/v1\"",
            "  env_key = \"OPENAI_API_KEY\"",
            "  wire_api = \"responses\"",
        ],
    },
    Agent {
        name: "gemini-cli",
        settings: &[
            "reads GOOGLE_GEMINI_BASE_URL; write to ~/.gemini/settings.json:",
            "  {\"security\": {\"auth\": {\"selectedType\": \"gemini-api-key\"}}}",
        ],
    },
    Agent { name: "qwen-code", settings: &["reads OPENAI_BASE_URL, with --auth-type openai"] },
    Agent {
        name: "opencode",
        settings: &[
            "reads OPENAI_BASE_URL and ANTHROPIC_BASE_URL, or opencode.json:",
            "  {\"provider\": {\"openai\": {\"options\": {\"baseURL\": \"{url}/openai/v1\"}},",
            "                \"anthropic\": {\"options\": {\"baseURL\": \"{url}/anthropic/v1\"}}}}",
        ],
    },
    Agent {
        name: "aider",
        settings: &["reads OPENAI_BASE_URL, ANTHROPIC_BASE_URL and GEMINI_API_BASE"],
    },
];

/// Returns the settings of all agents, as comment lines.
pub(super) fn lines(url: &str) -> String {
    let lines = |agent: &Agent| {
        let name = std::iter::once(agent.name).chain(std::iter::repeat(""));
        let lines = name
            .zip(agent.settings)
            .map(|(name, line)| format!("#   {name:<12} {}\n", line.replace("{url}", url)));
        lines.collect::<String>()
    };
    AGENTS.iter().map(lines).collect()
}

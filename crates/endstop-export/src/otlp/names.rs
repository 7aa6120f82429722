//! The names of OpenTelemetry's conventions for generative AI that are sent, in both generations. This is the one table
//! of them.

/// The published package that has the old names.
pub const OLD_SOURCE: &str = "PyPI opentelemetry-semantic-conventions 0.66b2";
/// The documents that have the new names.
pub const NEW_SOURCE: &str = "GitHub open-telemetry/semantic-conventions-genai, docs/gen-ai/client-inference.md and gen-ai-token-metrics.md, \
     commits 024a4f9 and 066d4a7";

/// A generation of the conventions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// The names of published packages.
    #[default]
    Old,
    /// The names of the newest documents.
    New,
}

impl Generation {
    /// Returns the generation that `OTEL_SEMCONV_STABILITY_OPT_IN` asks for.
    #[must_use]
    pub fn from_opt_in(list: Option<&str>) -> Self {
        let mut all = list.unwrap_or_default().split(',').map(str::trim);
        if all.any(|word| word == "gen_ai_latest_experimental") { Self::New } else { Self::Old }
    }
}

/// Use of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// An attribute of spans and metrics.
    Attribute,
    /// A histogram.
    Histogram,
    /// A counter.
    Counter,
}

/// A name of the conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Name in the old generation.
    pub old: Option<&'static str>,
    /// Name in the new generation.
    pub new: Option<&'static str>,
    /// Use of the name.
    pub used_as: Use,
    /// Type of an attribute, or unit of a metric.
    pub form: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

impl Term {
    /// Returns the name in a generation.
    #[must_use]
    pub fn name(&self, generation: Generation) -> Option<&'static str> {
        match generation {
            Generation::Old => self.old,
            Generation::New => self.new,
        }
    }
}

const fn both(name: &'static str, form: &'static str, meaning: &'static str) -> Term {
    Term { old: Some(name), new: Some(name), used_as: Use::Attribute, form, meaning }
}

const fn new_counter(name: &'static str, meaning: &'static str) -> Term {
    Term { old: None, new: Some(name), used_as: Use::Counter, form: "{token}", meaning }
}

const fn new_histogram(name: &'static str, meaning: &'static str) -> Term {
    Term { old: None, new: Some(name), used_as: Use::Histogram, form: "{token}", meaning }
}

macro_rules! terms {
    ($($id:ident = $term:expr;)*) => {
        $(pub(crate) static $id: Term = $term;)*
        /// All names.
        pub static TERMS: &[&Term] = &[$(&$id),*];
    };
}

terms! {
    OPERATION = both("gen_ai.operation.name", "string", "`chat`");
    SYSTEM = Term {
        old: Some("gen_ai.system"),
        new: None,
        used_as: Use::Attribute,
        form: "string",
        meaning: "provider",
    };
    PROVIDER = both("gen_ai.provider.name", "string", "provider");
    REQUEST_MODEL = both("gen_ai.request.model", "string", "model, as the record names it");
    RESPONSE_MODEL = both("gen_ai.response.model", "string", "model, as the record names it");
    STREAM = both("gen_ai.request.stream", "boolean", "whether a stream was asked for");
    MAX_TOKENS = both("gen_ai.request.max_tokens", "int", "limit on output tokens");
    FINISH_REASONS = both(
        "gen_ai.response.finish_reasons",
        "string[]",
        "finish reason in OpenTelemetry's words, `error` where an expected one never came",
    );
    FIRST_CHUNK = both(
        "gen_ai.response.time_to_first_chunk",
        "double",
        "seconds until the head of a streamed response",
    );
    INPUT_TOKENS = both("gen_ai.usage.input_tokens", "int", "input tokens");
    OUTPUT_TOKENS = both("gen_ai.usage.output_tokens", "int", "output tokens");
    CACHED_TOKENS = both("gen_ai.usage.cache_read.input_tokens", "int", "input tokens from a cache");
    REASONING_TOKENS = both("gen_ai.usage.reasoning.output_tokens", "int", "tokens spent on reasoning");
    ERROR_TYPE = both("error.type", "string", "cause of an error, as the record names it");
    TOKEN_TYPE = Term {
        old: Some("gen_ai.token.type"),
        new: None,
        used_as: Use::Attribute,
        form: "string",
        meaning: "`input` or `output`",
    };
    TOKEN_MODALITY = Term {
        old: None,
        new: Some("gen_ai.token.modality"),
        used_as: Use::Attribute,
        form: "string",
        meaning: "`unknown`",
    };
    DURATION = Term {
        old: Some("gen_ai.client.operation.duration"),
        new: Some("gen_ai.client.inference.duration"),
        used_as: Use::Histogram,
        form: "s",
        meaning: "time from the request to the end of its response",
    };
    TOKEN_USAGE = Term {
        old: Some("gen_ai.client.token.usage"),
        new: None,
        used_as: Use::Histogram,
        form: "{token}",
        meaning: "tokens of a response",
    };
    USAGE_INPUT = new_counter("gen_ai.client.inference.usage.input_tokens", "input tokens");
    USAGE_OUTPUT = new_counter("gen_ai.client.inference.usage.output_tokens", "output tokens");
    USAGE_CACHED = new_counter(
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "input tokens from a cache",
    );
    USAGE_REASONING = new_counter(
        "gen_ai.client.inference.usage.reasoning.output_tokens",
        "tokens spent on reasoning",
    );
    INPUT_SIZE = new_histogram(
        "gen_ai.client.inference.operation.input_tokens",
        "input tokens of a response",
    );
    OUTPUT_SIZE = new_histogram(
        "gen_ai.client.inference.operation.output_tokens",
        "output tokens of a response",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opt_in_is_a_list() {
        let generation = Generation::from_opt_in;
        assert_eq!(generation(None), Generation::Old);
        assert_eq!(generation(Some("http/dup, database")), Generation::Old);
        assert_eq!(generation(Some("http, gen_ai_latest_experimental")), Generation::New);
    }
}

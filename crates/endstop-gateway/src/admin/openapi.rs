//! The description of the admin API.

use endstop_store::view::EndingView;
use serde_json::{Value, json};

/// The listener's description of itself.
#[must_use]
pub fn openapi() -> Value {
    let ok = |what: &str| json!({ "200": { "description": what } });
    let text = |name: &str, what: &str| {
        json!({
            "name": name, "in": "query", "description": what, "required": false,
            "schema": { "type": "string" },
        })
    };
    let number = |name: &str, what: &str| {
        json!({
            "name": name, "in": "query", "description": what, "required": false,
            "schema": { "type": "integer", "minimum": 0 },
        })
    };
    let filters = json!([
        text("team", "the team"),
        text("key", "the id of the key"),
        text("provider", "the provider's id"),
        text("upstream", "the upstream's name"),
        text("model", "the model"),
        text("reason", "our reason, such as output_limit"),
        text("finish_reason", "the word that analytics know, such as length"),
        text("native", "the provider's own word"),
        text("action", "passed, warned, failed or refused"),
        text("since", "a time such as 7d or 2026-11-16, or milliseconds since 1970"),
        text("until", "likewise; now by default"),
        number("limit", "at most so many, 1 to 1000; 100 by default"),
    ]);
    let of_rows = |filter: &&Value| filter["name"] == "native" || filter["name"] == "action";
    let words: Vec<&Value> =
        filters.as_array().into_iter().flatten().filter(|filter| !of_rows(filter)).collect();
    let mut sums = filters.as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = endstop_store::Dimension::ALL.iter().map(|by| by.name()).collect();
    sums.push(text("by", &names.join(", ")));
    sums.push(text(
        "zone",
        "the time zone of days and hours, such as Europe/Berlin; UTC by default",
    ));
    sums.push(text("compare", "true: beside the time before, of the same length"));
    let ending = json!({ "$ref": "#/components/schemas/Ending" });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Endstop", "version": env!("CARGO_PKG_VERSION"),
                  "description": "How the LLM responses that passed this gateway ended." },
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Ending": ending_schema() },
        },
        "security": [{}, { "token": [] }],
        "paths": {
            "/healthz": { "get": { "summary": "The process lives.", "responses": ok("it does") } },
            "/readyz": { "get": { "summary": "New requests are taken.", "responses": {
                "200": { "description": "they are" },
                "503": { "description": "the gateway is draining, endings cannot be recorded, or the store's file is damaged" } } } },
            "/endstop/v1/endings": { "get": {
                "summary": "The newest endings, the newest first.",
                "parameters": filters, "responses": {
                    "200": { "description": "the endings", "content": { "application/json": {
                        "schema": { "type": "object", "required": ["endings"], "properties": {
                            "endings": { "type": "array", "items": ending } } } } } },
                    "400": { "description": "a filter is wrong" },
                    "401": { "description": "the token is missing or wrong" } } } },
            "/endstop/v1/endings/{id}": { "get": {
                "summary": "The ending of one response.",
                "parameters": [{ "name": "id", "in": "path", "required": true,
                                 "schema": { "type": "string" } }],
                "responses": {
                    "200": { "description": "the ending", "content": {
                        "application/json": { "schema": ending } } },
                    "401": { "description": "the token is missing or wrong" },
                    "404": { "description": "none of this id is kept" } } } },
            "/endstop/v1/tail": { "get": {
                "summary": "Endings as they come, as server-sent events.",
                "parameters": filters, "responses": {
                    "200": { "description": "a stream of `ending` events, each with an ending as its data",
                             "content": { "text/event-stream": { "schema": ending } } },
                    "400": { "description": "a filter is wrong" },
                    "401": { "description": "the token is missing or wrong" } } } },
            "/endstop/v1/report": { "get": {
                "summary": "Counts, shares, tokens and times, from the store's hourly sums.",
                "parameters": sums, "responses": {
                    "200": { "description": "{ total, groups: [...] }" },
                    "400": { "description": "the question is wrong" },
                    "401": { "description": "the token is missing or wrong" },
                    "404": { "description": "endings are not kept" },
                    "503": { "description": "the store cannot be reached" } } } },
            "/endstop/v1/words": { "get": {
                "summary": "The providers' own words: how often in the period, when they were first and last seen.",
                "parameters": words,
                "responses": {
                    "200": { "description": "{ words: [...] }" },
                    "400": { "description": "the question is wrong" },
                    "401": { "description": "the token is missing or wrong" },
                    "404": { "description": "endings are not kept" },
                    "503": { "description": "the store cannot be reached" } } } },
            "/endstop/v1/upstreams": { "get": {
                "summary": "Where requests can go.", "responses": {
                    "200": { "description": "{ upstreams: [...] }" },
                    "401": { "description": "the token is missing or wrong" } } } },
            "/metrics": { "get": {
                "summary": "Counters and histograms, as Prometheus reads them.", "responses": {
                    "200": { "description": "the metrics", "content": { "text/plain": {} } },
                    "401": { "description": "the token is missing or wrong" } } } },
            "/endstop/v1/openapi.json": { "get": {
                "summary": "This document.", "responses": ok("it") } },
        },
    })
}

/// Returns the schema of an ending, with the fields that an ending has.
fn ending_schema() -> Value {
    let empty = endstop::Record::default();
    let example = serde_json::to_value(EndingView::from(&empty)).unwrap_or_default();
    let of = |value: &Value| match value {
        Value::String(_) => json!({ "type": "string" }),
        Value::Number(_) => json!({ "type": "integer" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Array(_) => json!({ "type": "array", "items": { "type": "string" } }),
        Value::Object(_) => json!({ "type": "object" }),
        // Text or a number that may be missing.
        Value::Null => json!({ "type": ["string", "integer", "null"] }),
    };
    let fields = example.as_object().cloned().unwrap_or_default();
    let names: Vec<&String> = fields.keys().collect();
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, value)| (name.clone(), of(value))).collect();
    json!({
        "type": "object",
        "description": "One ending, as the log, /endings, /endings/{id} and /tail tell it.",
        "required": names,
        "properties": properties,
    })
}

//! The description of the admin API.

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
        number("since", "milliseconds since 1970"),
        number("until", "likewise"),
        number("limit", "at most so many, 1 to 1000; 100 by default"),
    ]);
    let mut sums = filters.as_array().cloned().unwrap_or_default();
    sums.push(text("by", "finish_reason, reason, provider, model, team, key, upstream, hour, day"));
    sums.push(text("compare", "true: beside the time before, of the same length"));
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Endstop", "version": env!("CARGO_PKG_VERSION"),
                  "description": "How the LLM responses that passed this gateway ended." },
        "components": { "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } } },
        "security": [{}, { "token": [] }],
        "paths": {
            "/healthz": { "get": { "summary": "The process lives.", "responses": ok("it does") } },
            "/readyz": { "get": { "summary": "New requests are taken.", "responses": {
                "200": { "description": "they are" },
                "503": { "description": "the gateway is draining, or endings cannot be recorded" } } } },
            "/endstop/v1/endings": { "get": {
                "summary": "The newest endings, the newest first.",
                "parameters": filters, "responses": {
                    "200": { "description": "{ endings: [...] }" },
                    "400": { "description": "a filter is wrong" },
                    "401": { "description": "the token is missing or wrong" } } } },
            "/endstop/v1/endings/{id}": { "get": {
                "summary": "The ending of one response.",
                "parameters": [{ "name": "id", "in": "path", "required": true,
                                 "schema": { "type": "string" } }],
                "responses": {
                    "200": { "description": "the ending" },
                    "401": { "description": "the token is missing or wrong" },
                    "404": { "description": "none of this id is kept" } } } },
            "/endstop/v1/tail": { "get": {
                "summary": "Endings as they come, as server-sent events.",
                "parameters": filters, "responses": {
                    "200": { "description": "a stream of `ending` events" },
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
                "summary": "The providers' own words, when they were first and last seen.",
                "parameters": [number("since", "milliseconds since 1970"),
                               number("until", "likewise"), number("limit", "at most so many")],
                "responses": {
                    "200": { "description": "{ words: [...] }" },
                    "401": { "description": "the token is missing or wrong" },
                    "404": { "description": "endings are not kept" },
                    "503": { "description": "the store cannot be reached" } } } },
            "/endstop/v1/upstreams": { "get": {
                "summary": "Where requests can go.", "responses": {
                    "200": { "description": "{ upstreams: [...] }" },
                    "401": { "description": "the token is missing or wrong" } } } },
            "/endstop/v1/openapi.json": { "get": {
                "summary": "This document.", "responses": ok("it") } },
        },
    })
}

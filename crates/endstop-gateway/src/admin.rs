//! The operators' listener: what was told, live and by id; health; the description of itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use endstop::Reason;
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::config::Secret;
use crate::state::Shared;
use crate::told::Wanted;

/// The most records that one request gets.
const MOST: usize = 1000;

/// What the listener answers from.
#[derive(Clone, Debug)]
pub struct Admin {
    /// What is told.
    pub shared: Arc<Shared>,
    /// What operators must show; nothing on loopback by default.
    pub token: Option<Secret>,
    /// New requests are taken.
    pub ready: Arc<AtomicBool>,
}

/// The listener's routes.
pub fn router(admin: Admin) -> Router {
    let closed = Router::new()
        .route("/endstop/v1/endings", get(endings))
        .route("/endstop/v1/endings/{id}", get(ending))
        .route("/endstop/v1/tail", get(tail))
        .route("/endstop/v1/upstreams", get(upstreams))
        .layer(middleware::from_fn_with_state(admin.clone(), authorize));
    Router::new()
        .route("/healthz", get(|| async { Json(json!({ "ok": true })) }))
        .route("/readyz", get(ready))
        .route("/endstop/v1/openapi.json", get(|| async { Json(openapi()) }))
        .merge(closed)
        .fallback(|| async {
            wrong(StatusCode::NOT_FOUND, "there is no such path; see /endstop/v1/openapi.json")
        })
        .layer(middleware::map_response(secure))
        .with_state(admin)
}

async fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
    ] {
        headers.insert(name, header::HeaderValue::from_static(value));
    }
    response
}

fn wrong(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "error": { "message": message } }))).into_response()
}

async fn authorize(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let shown = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    match (&admin.token, shown) {
        (None, _) => next.run(request).await,
        (Some(token), Some(shown)) if token.is(shown) => next.run(request).await,
        (Some(_), _) => {
            wrong(StatusCode::UNAUTHORIZED, "show the admin token: Authorization: Bearer …")
        }
    }
}

async fn ready(State(admin): State<Admin>) -> Response {
    let streams = admin.shared.live.count();
    let (records, recording) = match &admin.shared.recording {
        None => (true, Value::Null),
        Some(recording) => recording.status(),
    };
    let why = match (admin.ready.load(Ordering::Acquire), records) {
        (true, true) => None,
        (false, _) => Some("draining"),
        (true, false) => Some("endings cannot be recorded"),
    };
    let body = json!({
        "ready": why.is_none(), "why": why, "streams": streams, "recording": recording,
    });
    let status = if why.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(body)).into_response()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    provider: Option<String>,
    upstream: Option<String>,
    model: Option<String>,
    reason: Option<String>,
    finish_reason: Option<String>,
    action: Option<String>,
    since: Option<u64>,
    limit: Option<usize>,
}

impl Asked {
    fn wanted(self) -> Result<Wanted, String> {
        let reason = match self.reason.as_deref() {
            None => None,
            Some(name) => Some(Reason::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
                format!("there is no such reason; there are: {}", known.join(", "))
            })?),
        };
        let limit = self.limit.unwrap_or(100);
        if limit == 0 || limit > MOST {
            return Err(format!("limit is from 1 to {MOST}"));
        }
        Ok(Wanted {
            provider: self.provider,
            upstream: self.upstream,
            model: self.model,
            reason,
            finish_reason: self.finish_reason,
            action: self.action,
            since: self.since,
            limit,
        })
    }
}

type Filter = Result<Query<Asked>, axum::extract::rejection::QueryRejection>;

fn wanted(filter: Filter) -> Result<Wanted, String> {
    filter.map_err(|rejection| rejection.body_text()).and_then(|Query(asked)| asked.wanted())
}

async fn endings(State(admin): State<Admin>, filter: Filter) -> Response {
    match wanted(filter) {
        Ok(wanted) => {
            let found = admin.shared.told.find(&wanted);
            let found: Vec<_> = found.iter().map(|record| &**record).collect();
            Json(json!({ "endings": found })).into_response()
        }
        Err(message) => wrong(StatusCode::BAD_REQUEST, &message),
    }
}

async fn ending(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    match admin.shared.told.get(&id) {
        Some(record) => Json(&*record).into_response(),
        None => wrong(
            StatusCode::NOT_FOUND,
            "no ending of this id is kept: it is still under way, or older than those kept",
        ),
    }
}

async fn tail(State(admin): State<Admin>, filter: Filter) -> Response {
    let wanted = match wanted(filter) {
        Ok(wanted) => wanted,
        Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
    };
    Sse::new(records(admin, wanted)).keep_alive(KeepAlive::default()).into_response()
}

fn records(admin: Admin, wanted: Wanted) -> impl Stream<Item = Result<Event, Infallible>> {
    let listening = admin.shared.told.listen();
    stream::unfold((listening, wanted), |(mut listening, wanted)| async move {
        loop {
            let event = match listening.recv().await {
                Ok(record) if wanted.fits(&record) => {
                    Event::default().event("ending").json_data(&*record).ok()?
                }
                Ok(_) => continue,
                Err(RecvError::Lagged(missed)) => {
                    Event::default().event("missed").data(missed.to_string())
                }
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok(event), (listening, wanted)));
        }
    })
}

async fn upstreams(State(admin): State<Admin>) -> Response {
    let settings = admin.shared.settings();
    let all: Vec<Value> = settings
        .routes
        .iter()
        .map(|upstream| {
            json!({
                "name": upstream.name,
                "provider": upstream.provider.id,
                "path": upstream.sdk_path(),
                "own_key": upstream.has_own_key(),
            })
        })
        .collect();
    Json(json!({ "upstreams": all })).into_response()
}

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
        text("provider", "the provider's id"),
        text("upstream", "the upstream's name"),
        text("model", "the model"),
        text("reason", "our reason, such as output_limit"),
        text("finish_reason", "the word that analytics know, such as length"),
        text("action", "passed, warned, failed or refused"),
        number("since", "milliseconds since 1970"),
        number("limit", "at most so many, 1 to 1000; 100 by default"),
    ]);
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
            "/endstop/v1/upstreams": { "get": {
                "summary": "Where requests can go.", "responses": {
                    "200": { "description": "{ upstreams: [...] }" },
                    "401": { "description": "the token is missing or wrong" } } } },
            "/endstop/v1/openapi.json": { "get": {
                "summary": "This document.", "responses": ok("it") } },
        },
    })
}

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
use endstop_store::{Backend, Dimension, Error as StoreError, Filter, Period};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::config::Secret;
use crate::ending_log::{Wanted, now};
use crate::state::Shared;

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
        .route("/endstop/v1/report", get(report))
        .route("/endstop/v1/words", get(words))
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

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EndingsQuery {
    team: Option<String>,
    key: Option<String>,
    provider: Option<String>,
    upstream: Option<String>,
    model: Option<String>,
    reason: Option<String>,
    finish_reason: Option<String>,
    native: Option<String>,
    action: Option<String>,
    since: Option<u64>,
    until: Option<u64>,
    limit: Option<usize>,
    /// For reports alone.
    by: Option<String>,
    compare: Option<bool>,
}

impl EndingsQuery {
    fn filter(&self) -> Filter {
        Filter {
            team: self.team.clone(),
            key: self.key.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            upstream: self.upstream.clone(),
            reason: self.reason.clone(),
            finish_reason: self.finish_reason.clone(),
        }
    }

    /// From when to when: all that is recorded, or a week for sums.
    fn period(&self, week: bool) -> Period {
        let until = self.until.unwrap_or_else(|| now() + 1);
        let week = if week { until.saturating_sub(7 * 24 * 3_600_000) } else { 0 };
        Period { since: self.since.unwrap_or(week), until }
    }

    fn stored(&self) -> Result<endstop_store::Wanted, String> {
        // What is wrong is said as it is where nothing is stored.
        let limit = self.clone().wanted()?.limit;
        Ok(endstop_store::Wanted {
            filter: self.filter(),
            native: self.native.clone(),
            action: self.action.clone(),
            period: Some(self.period(false)),
            limit,
        })
    }

    fn query(&self) -> Result<endstop_store::Query, String> {
        let by = self.by.as_deref().unwrap_or("reason").split(',');
        let by: Result<Vec<Dimension>, _> = by.map(str::parse).collect();
        let period = self.period(true);
        let length = period.until.saturating_sub(period.since);
        let before = Period { since: period.since.saturating_sub(length), until: period.since };
        Ok(endstop_store::Query {
            by: by.map_err(|error| error.to_string())?,
            period,
            before: self.compare.unwrap_or(false).then_some(before),
            filter: self.filter(),
            limit: self.limit.unwrap_or(100),
        })
    }

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

type Asking = Result<Query<EndingsQuery>, axum::extract::rejection::QueryRejection>;

fn asked(asking: Asking) -> Result<EndingsQuery, String> {
    asking.map_err(|rejection| rejection.body_text()).map(|Query(asked)| asked)
}

fn wanted(asking: Asking) -> Result<Wanted, String> {
    asked(asking).and_then(EndingsQuery::wanted)
}

/// Asks the store, apart from what serves, and answers with what it says.
async fn ask(
    shared: Arc<Shared>,
    question: impl FnOnce(&mut dyn Backend) -> Result<Response, StoreError> + Send + 'static,
) -> Response {
    let asking = move || match &shared.recording {
        Some(recording) => recording.ask(question).unwrap_or_else(|error| unanswered(&error)),
        None => {
            let message = "endings are not kept: set `store` in the gateway's configuration";
            wrong(StatusCode::NOT_FOUND, message)
        }
    };
    let asked = tokio::task::spawn_blocking(asking).await;
    asked.unwrap_or_else(|_| {
        wrong(StatusCode::INTERNAL_SERVER_ERROR, "the question could not be asked")
    })
}

fn unanswered(error: &StoreError) -> Response {
    let asked_wrongly = matches!(error, StoreError::Query(_));
    let status =
        if asked_wrongly { StatusCode::BAD_REQUEST } else { StatusCode::SERVICE_UNAVAILABLE };
    wrong(status, &error.to_string())
}

async fn endings(State(admin): State<Admin>, asking: Asking) -> Response {
    let asked = match asked(asking) {
        Ok(asked) => asked,
        Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
    };
    if admin.shared.recording.is_some() {
        let wanted = match asked.stored() {
            Ok(wanted) => wanted,
            Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
        };
        let question = move |store: &mut dyn Backend| {
            let found = store.endings(&wanted)?;
            Ok(Json(json!({ "endings": found })).into_response())
        };
        return ask(admin.shared, question).await;
    }
    match asked.wanted() {
        Ok(wanted) => {
            let found = admin.shared.told.find(&wanted);
            let found: Vec<_> = found.iter().map(|record| &**record).collect();
            Json(json!({ "endings": found })).into_response()
        }
        Err(message) => wrong(StatusCode::BAD_REQUEST, &message),
    }
}

async fn ending(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let gone = "no ending of this id is kept: it is still under way, or older than those kept";
    if let Some(told) = admin.shared.told.get(&id) {
        return Json(&*told).into_response();
    }
    if admin.shared.recording.is_none() {
        return wrong(StatusCode::NOT_FOUND, gone);
    }
    let question = move |store: &mut dyn Backend| {
        let stored = store.ending(&id)?;
        Ok(stored.map_or_else(
            || wrong(StatusCode::NOT_FOUND, gone),
            |stored| Json(stored).into_response(),
        ))
    };
    ask(admin.shared, question).await
}

async fn report(State(admin): State<Admin>, asking: Asking) -> Response {
    let query = match asked(asking).and_then(|asked| asked.query()) {
        Ok(query) => query,
        Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
    };
    let question = move |store: &mut dyn Backend| {
        let report = store.report(&query)?;
        Ok(Json(endstop_store::view::json(&query, &report)).into_response())
    };
    ask(admin.shared, question).await
}

async fn words(State(admin): State<Admin>, asking: Asking) -> Response {
    let asked = match asked(asking) {
        Ok(asked) => asked,
        Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
    };
    let (period, limit) = (asked.period(true), asked.limit.unwrap_or(100));
    let question = move |store: &mut dyn Backend| {
        let words = store.words(period, limit)?;
        Ok(Json(json!({ "words": words })).into_response())
    };
    ask(admin.shared, question).await
}

async fn tail(State(admin): State<Admin>, asking: Asking) -> Response {
    let wanted = match wanted(asking) {
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
                "provider": upstream.speaks,
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

//! The operators' listener: endings, reports, health, and a description of the API.

mod openapi;
mod query;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use endstop_export::metrics::CONTENT_TYPE;
use endstop_store::view::EndingView;
use endstop_store::{Error as StoreError, Store};
use futures_util::stream::{self, Stream, StreamExt as _};
use hyper::Version;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;
use tower_service::Service as _;

use crate::client::connection::{Busy, Phase};
use crate::client::origin::{self, Foreign};
use crate::settings::Shared;
use crate::watch::health;
use crate::watch::recent::Wanted;
use query::{Asking, asked, wanted};

pub use openapi::openapi;

type Request<B = axum::body::Body> = axum::http::Request<B>;
type Response<B = axum::body::Body> = axum::http::Response<B>;

/// State of the listener.
#[derive(Clone, Debug)]
pub struct Admin {
    /// State that requests share.
    pub shared: Arc<Shared>,
    /// Whether new requests are accepted.
    pub ready: Arc<AtomicBool>,
    /// Whether only this machine can reach the listener.
    pub local: bool,
    /// Readers of the tail that may come.
    pub tails: Arc<Semaphore>,
}

/// Readers of the tail at once. Fewer than connections, so that health checks are answered.
pub(crate) const TAILS: usize = 64;

/// Serves one request.
pub(crate) async fn serve(
    mut router: Router,
    mut busy: Busy,
    request: Request<Incoming>,
) -> Result<Response<Page>, Infallible> {
    let version = request.version();
    let response = router.call(request).await?;
    let chunks = version == Version::HTTP_11 && response.body().size_hint().exact().is_none();
    busy.responds(if chunks { Phase::Chunked } else { Phase::Other });
    Ok(response.map(|body| Page { body, _busy: busy }))
}

/// The body of a response to an operator.
#[derive(Debug)]
pub(crate) struct Page {
    body: axum::body::Body,
    _busy: Busy,
}

impl Body for Page {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(admin.clone(), authorize));
    Router::new()
        .route("/healthz", get(|| async { Json(json!({ "ok": true })) }))
        .route("/readyz", get(ready))
        .route("/endstop/v1/openapi.json", get(|| async { Json(openapi()) }))
        .merge(closed)
        .fallback(|| async {
            wrong(StatusCode::NOT_FOUND, "unknown path: see /endstop/v1/openapi.json")
        })
        .layer(middleware::from_fn_with_state(admin.clone(), check))
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

/// Refuses requests that a web page could send.
async fn check(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if request.method() == Method::CONNECT {
        let message = "the method CONNECT is not supported: this is not a proxy";
        return wrong(StatusCode::METHOD_NOT_ALLOWED, message);
    }
    let settings = admin.shared.settings();
    let hosts = &settings.config.hosts;
    let checked = match admin.local {
        true => origin::check(&request, hosts),
        false => origin::check_page(&request, hosts),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(Foreign::Host) => wrong(
            StatusCode::FORBIDDEN,
            "the Host header does not name this machine: use 127.0.0.1 or localhost, or add the \
             name to `hosts` in the gateway's configuration",
        ),
        Err(Foreign::Page) => {
            wrong(StatusCode::FORBIDDEN, "a web page of another site may not read this")
        }
    }
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
    // None on loopback by default.
    let allowed = match (&admin.shared.settings().admin_token, shown) {
        (None, _) => true,
        (Some(token), Some(shown)) => token.is(shown),
        (Some(_), None) => false,
    };
    if allowed {
        return next.run(request).await;
    }
    wrong(StatusCode::UNAUTHORIZED, "show the admin token: Authorization: Bearer …")
}

async fn ready(State(admin): State<Admin>) -> Response {
    let streams = admin.shared.live.count();
    let (trouble, recording) = match &admin.shared.recording {
        None => (None, Value::Null),
        Some(recording) => recording.status(),
    };
    let draining = !admin.ready.load(Ordering::Acquire);
    let why = if draining { Some("draining".to_owned()) } else { trouble };
    let body = json!({
        "ready": why.is_none(), "why": why, "streams": streams, "recording": recording,
    });
    let status = if why.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(body)).into_response()
}

/// Asks the store, apart from what serves, and answers with what it says.
async fn ask(
    shared: Arc<Shared>,
    question: impl FnOnce(&mut dyn Store) -> Result<Response, StoreError> + Send + 'static,
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
        let question = move |store: &mut dyn Store| {
            let found = store.endings(&wanted)?;
            Ok(Json(json!({ "endings": views(&found) })).into_response())
        };
        return ask(admin.shared, question).await;
    }
    match asked.wanted() {
        Ok(wanted) => {
            let found = admin.shared.watch.find(&wanted);
            let found = views(found.iter().map(|ended| &ended.kept));
            Json(json!({ "endings": found })).into_response()
        }
        Err(message) => wrong(StatusCode::BAD_REQUEST, &message),
    }
}

fn views<'a, T: Into<EndingView<'a>>>(found: impl IntoIterator<Item = T>) -> Vec<EndingView<'a>> {
    found.into_iter().map(Into::into).collect()
}

async fn ending(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let gone = "no ending of this id is kept: it is still under way, or older than those kept";
    if let Some(told) = admin.shared.watch.get(&id) {
        return Json(EndingView::from(&told.kept)).into_response();
    }
    if admin.shared.recording.is_none() {
        return wrong(StatusCode::NOT_FOUND, gone);
    }
    let question = move |store: &mut dyn Store| {
        let stored = store.ending(&id)?;
        Ok(stored.map_or_else(
            || wrong(StatusCode::NOT_FOUND, gone),
            |stored| Json(EndingView::from(&stored)).into_response(),
        ))
    };
    ask(admin.shared, question).await
}

async fn report(State(admin): State<Admin>, asking: Asking) -> Response {
    let query = match asked(asking).and_then(|asked| asked.query()) {
        Ok(query) => query,
        Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
    };
    let question = move |store: &mut dyn Store| {
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
    let limit = asked.limit.unwrap_or(100);
    let period = match asked.period(true) {
        Ok(period) => period,
        Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
    };
    let filter = asked.filter();
    let question = move |store: &mut dyn Store| {
        let words = store.words(&filter, period, limit)?;
        Ok(Json(json!({ "words": words })).into_response())
    };
    ask(admin.shared, question).await
}

async fn tail(State(admin): State<Admin>, asking: Asking) -> Response {
    let wanted = match wanted(asking) {
        Ok(wanted) => wanted,
        Err(message) => return wrong(StatusCode::BAD_REQUEST, &message),
    };
    let Ok(permit) = admin.tails.clone().try_acquire_owned() else {
        let message = format!("{TAILS} others read the tail: end one of them first");
        return wrong(StatusCode::SERVICE_UNAVAILABLE, &message);
    };
    let records = records(admin, wanted).map(move |record| {
        let _permit = &permit;
        record
    });
    Sse::new(records).keep_alive(KeepAlive::default()).into_response()
}

fn records(admin: Admin, wanted: Wanted) -> impl Stream<Item = Result<Event, Infallible>> {
    let listening = admin.shared.watch.listen();
    stream::unfold((listening, wanted), |(mut listening, wanted)| async move {
        loop {
            let event = match listening.recv().await {
                Ok(record) if wanted.fits(&record) => Event::default()
                    .event("ending")
                    .json_data(EndingView::from(&record.kept))
                    .ok()?,
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

async fn metrics(State(admin): State<Admin>) -> Response {
    let Some(text) = health::text(&admin.shared) else {
        return wrong(StatusCode::NOT_FOUND, "endings are not counted");
    };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
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

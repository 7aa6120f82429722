//! Responses that a provider stores: referred to by later requests, polled and resumed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::answer::Answer;
use crate::json::{Json, obj};
use crate::request::Request;
use crate::scene::Scene;
use crate::script::Script;
use crate::sim_request::SimRequest;
use crate::wire::{self, SimWire};

/// Maximum number of responses; the oldest are forgotten first.
const MOST: usize = 1000;

/// Maximum length of a response that is kept whole, in bytes of its text.
const LONGEST: usize = 1 << 20;

/// Parts of the paths of stored responses, and the wires that store them.
const PATHS: [(&str, &str); 2] =
    [("/responses/", "openai-responses"), ("/predictions/", "replicate")];

/// Response that the provider stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) id: String,
    /// Text of the answer so far, over all responses that it continues.
    pub(crate) text: String,
    pub(crate) wire: &'static SimWire,
    pub(crate) ask: SimRequest,
    pub(crate) answer: Answer,
    /// Script of the scenario, for the first request after the response is over.
    pub(crate) script: Option<Script>,
    /// Number of requests before the response is over.
    pub(crate) polls: u8,
    pub(crate) cancelled: bool,
}

/// All stored responses.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<VecDeque<Stored>>);

impl Memory {
    fn all(&self) -> MutexGuard<'_, VecDeque<Stored>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    /// Stores a response, unless it is very long.
    pub(crate) fn add(&self, stored: Stored) {
        if stored.text.len() > LONGEST {
            return;
        }
        let mut all = self.all();
        while all.len() >= MOST {
            all.pop_front();
        }
        all.push_back(stored);
    }

    /// Returns the text of the response with this id.
    pub(crate) fn text_of(&self, id: &str) -> Option<String> {
        self.all().iter().rev().find(|stored| stored.id == id).map(|stored| stored.text.clone())
    }

    /// Answers a request for a stored response: `GET` and `DELETE` of `…/responses/{id}`, `POST` of
    /// `…/responses/{id}/cancel`, and `GET` of `…/predictions/{id}` and `…/predictions/{id}/stream`.
    /// Returns `None` for other requests.
    pub(crate) fn answer(&self, request: &Request) -> Option<(&'static str, Script)> {
        let path = request.path();
        let found = |(part, wire): &(&str, &'static str)| Some((path.split_once(part)?.1, *wire));
        let (rest, wire) = PATHS.iter().find_map(found)?;
        let (id, action) = rest.split_once('/').unwrap_or((rest, ""));
        let mut all = self.all();
        let at = all.iter().rposition(|stored| stored.id == id);
        let stored = at.and_then(|at| all.get_mut(at));
        let script = match (request.method.as_str(), action) {
            ("GET", "") => Some(stored.map_or_else(|| not_found(id), |found| found.get(request))),
            ("GET", "stream") if wire == "replicate" => {
                Some(stored.map_or_else(|| not_found(id), Stored::stream))
            }
            ("POST", "cancel") => Some(stored.map_or_else(|| not_found(id), Stored::cancel)),
            ("DELETE", "") => Some(match at.and_then(|at| all.remove(at)) {
                Some(_) => json(200, &obj! { "id": id, "object": "response", "deleted": true }),
                None => not_found(id),
            }),
            _ => None,
        };
        script.map(|script| (wire, script))
    }
}

impl Stored {
    /// Returns the response as it is now, or the rest of its stream.
    fn get(&mut self, request: &Request) -> Script {
        if request.asks("stream=true") {
            return self.rest(request);
        }
        if self.cancelled {
            return json(200, &wire::pending(&self.ask, "cancelled"));
        }
        if self.polls > 0 {
            self.polls -= 1;
            return json(200, &wire::pending(&self.ask, "in_progress"));
        }
        match self.script.take_if(|_| !self.ask.streamed) {
            Some(script) => script,
            None => self.scene().plain(&self.answer),
        }
    }

    /// Returns the stream whose URL the response named.
    fn stream(&mut self) -> Script {
        match self.script.take() {
            Some(script) => script,
            None => self.scene().whole(&self.answer),
        }
    }

    /// Returns the events after the one that the request names.
    fn rest(&self, request: &Request) -> Script {
        if !self.ask.background || !self.ask.streamed {
            return error(
                400,
                "This response cannot be streamed: it was not created with \
                               background=true and stream=true.",
            );
        }
        let after = request.query("starting_after").and_then(|value| value.parse().ok());
        let seen = after.map_or(0, |after: usize| after.saturating_add(1));
        let scene = self.scene();
        let events = scene.events(&self.answer);
        scene.streamed(events.get(seen..).unwrap_or_default())
    }

    fn cancel(&mut self) -> Script {
        if !self.ask.background {
            return error(400, "Only responses created with background=true can be cancelled.");
        }
        self.cancelled = self.cancelled || self.polls > 0;
        self.get(&Request::default())
    }

    fn scene(&self) -> Scene<'static> {
        Scene { wire: self.wire, ask: self.ask.clone(), value: None }
    }
}

fn not_found(id: &str) -> Script {
    error(404, &format!("Response with id '{id}' not found."))
}

fn error(status: u16, message: &str) -> Script {
    let error = obj! {
        "message": message, "type": "invalid_request_error", "param": Json::Null,
        "code": Json::Null,
    };
    json(status, &obj! { "error": error })
}

fn json(status: u16, value: &Json) -> Script {
    Script::plain(status, "application/json", value.to_string().into_bytes())
}

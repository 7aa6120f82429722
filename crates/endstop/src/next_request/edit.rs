//! A request that is being changed: the ways to continue an answer, and the JSON edits that they
//! use.

use serde_json::{Value, json};

use super::document::{Document, Span, quoted};
use super::{
    ConversationShape, Impossible, MessageList, NextRequest, RequestChange, Restriction, Scale,
    SoFar, Speaker, Temperature, Wording,
};
use crate::dialect::common::TOOL_NAME;
use crate::provider::{Echo, Prefill, Profile, Resume, Role, TRAILING, Token, TokenInput, TokenOf};

/// A request that is being changed.
pub(super) struct Edit<'a> {
    profile: &'a Profile,
    request: Document,
}

impl<'a> Edit<'a> {
    pub(super) fn new(profile: &'a Profile, request: &str) -> Result<Self, Impossible> {
        let request = Document::new(request, profile.request_shape.either_case);
        let request = request.ok_or(Impossible::Strange { field: "" })?;
        Ok(Self { profile, request })
    }

    pub(super) fn done(
        self,
        how: RequestChange,
        sentence: String,
    ) -> Result<NextRequest, Impossible> {
        let request = self.request.finish().ok_or(Impossible::Strange { field: "" })?;
        Ok(NextRequest {
            request,
            how,
            sentence,
            echoes: false,
            echoes_if_empty: false,
            trimmed: 0,
            cap_counts_all: false,
            base_url: None,
        })
    }

    pub(super) fn by_prefill(
        mut self,
        prefill: Prefill,
        model: &str,
        so_far: &SoFar<'_>,
    ) -> Result<NextRequest, Impossible> {
        if let Some(restriction) =
            self.restricted_by(self.profile.request_shape.prefill_restrictions)
        {
            let because = format!("the answer cannot be prefilled because {}", restriction.because);
            return Err(Impossible::NoPrefill { because });
        }
        let text = if prefill.trims { so_far.text.trim_end() } else { so_far.text };
        if text.trim_end().is_empty() {
            return Err(Impossible::NothingSoFar);
        }
        let conversation = self.conversation()?;
        match conversation {
            ConversationShape::MessageList(messages) => {
                self.prefill_message(messages, prefill, text)?;
            }
            ConversationShape::Prompt(field, echo) => self.prefill_prompt(field, echo, text)?,
            ConversationShape::Templated(field, raw) if self.is_true(raw) => {
                self.append(field, text)?;
            }
            ConversationShape::Templated(..) | ConversationShape::Apart(..) => {
                let because =
                    "the prompt becomes a user message and cannot be prefilled".to_owned();
                return Err(Impossible::NoPrefill { because });
            }
        }
        for (flag, value) in prefill.request_flags {
            self.put(flag, json!(value))?;
        }
        let repeated = match conversation {
            ConversationShape::Prompt(_, echo) => self.is_true(echo),
            ConversationShape::MessageList(_)
            | ConversationShape::Apart(..)
            | ConversationShape::Templated(..) => false,
        };
        let echoes = repeated
            || match prefill.echoes {
                Echo::Never => false,
                Echo::Plain => !self.is_true("stream"),
                Echo::Always => true,
            };
        let sentence = format!(
            "the answer so far is prefilled, and {} continues it for `{model}`",
            self.profile.provider
        );
        let trimmed = so_far.text.len() - text.len();
        let next = self.done(RequestChange::Prefill, sentence)?;
        let echoes_if_empty = prefill.echoes == Echo::Plain && !echoes;
        let base_url = prefill.base_url;
        Ok(NextRequest { echoes, echoes_if_empty, trimmed, base_url, ..next })
    }

    pub(super) fn by_token(
        mut self,
        token: Token,
        so_far: &SoFar<'_>,
        hint: &str,
    ) -> Result<NextRequest, Impossible> {
        if let Some(restriction) = self.restricted_by(token.restrictions) {
            let because =
                format!("`{}` cannot be used because {}", token.field, restriction.because);
            return Err(Impossible::NoToken { because });
        }
        let given = match token.of {
            TokenOf::Response => so_far.id,
            TokenOf::Answer => so_far.token,
        };
        let held = token.held_by.is_some_and(|field| self.has(field));
        match given {
            _ if held => {}
            Some(given) => self.put(token.field, json!(given))?,
            None => {
                let because = format!("the provider returned no `{}`", token.field);
                return Err(Impossible::NoToken { because });
            }
        }
        match token.input {
            TokenInput::Same => {}
            TokenInput::Hint(list, role) => {
                let ConversationShape::MessageList(messages) = self.conversation()? else {
                    return Err(unsupported(self.profile, "a hint"));
                };
                let message = message_of(messages, role.name(), &quoted(hint));
                self.put_raw(list, &format!("[{message}]"))?;
            }
            TokenInput::HintText(field) => self.put(field, json!(hint))?,
            TokenInput::Token(field, input) => {
                let Some(token) = so_far.token else {
                    let because = format!("the provider returned no `{field}`");
                    return Err(Impossible::NoToken { because });
                };
                self.put(field, json!(token))?;
                self.remove(input);
            }
        }
        let field = if held { token.held_by.unwrap_or(token.field) } else { token.field };
        let sentence = format!("the request refers to the earlier response by `{field}`");
        let next = self.done(RequestChange::Token { field: field.to_owned() }, sentence)?;
        Ok(NextRequest { cap_counts_all: token.cap_counts_all, ..next })
    }

    pub(super) fn by_resend(
        mut self,
        so_far: &SoFar<'_>,
        is_summary: fn(&Value) -> bool,
    ) -> Result<NextRequest, Impossible> {
        let content = so_far.content.ok_or(Impossible::NoContent)?;
        let blocks: Value = serde_json::from_str(content.get()).unwrap_or_default();
        if blocks.as_array().is_some_and(Vec::is_empty) || blocks.is_null() {
            return Err(Impossible::NoContent);
        }
        if let Some([only]) = blocks.as_array().map(Vec::as_slice)
            && is_summary(only)
        {
            return Err(Impossible::SummedUp);
        }
        let ConversationShape::MessageList(messages) = self.conversation()? else {
            return Err(unsupported(self.profile, "resuming a paused answer"));
        };
        let list = self.list(messages)?;
        self.request.push(&list, &message_of(messages, messages.assistant, content.get()));
        let sentence = "the answer is sent back unchanged, and the provider resumes it".to_owned();
        self.done(RequestChange::Resend, sentence)
    }

    pub(super) fn by_hint(
        mut self,
        role: Role,
        so_far: &SoFar<'_>,
        wording: &Wording,
    ) -> Result<NextRequest, Impossible> {
        if so_far.text.trim_end().is_empty() {
            return Err(Impossible::NothingSoFar);
        }
        let hint = match (role, self.conversation()?) {
            (Role::System | Role::Developer, ConversationShape::MessageList(_)) => {
                wording.hint.to_string()
            }
            (_, ConversationShape::MessageList(_) | ConversationShape::Apart(..)) => {
                quoting(&wording.hint, tail(so_far.text, wording.tail))
            }
            // No assistant message holds the answer, so all of it is quoted.
            (_, ConversationShape::Templated(..)) => quoting(&wording.hint, so_far.text),
            (_, ConversationShape::Prompt(..)) => return Err(unsupported(self.profile, "a hint")),
        };
        self.say(so_far.text, role, &hint)?;
        let sentence = format!("a {} message asks the model to continue", role.name());
        self.done(RequestChange::Hint { role }, sentence)
    }

    pub(super) fn messages(&self) -> Option<u32> {
        let count = |field: &str| match self.at(field) {
            Some(Value::Array(list)) => u32::try_from(list.len()).unwrap_or(u32::MAX),
            Some(Value::Null) | None => 0,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => 1,
        };
        Some(match self.conversation().ok()? {
            ConversationShape::MessageList(messages) => count(messages.list),
            ConversationShape::Apart(message, messages) => {
                count(messages.list).saturating_add(count(message))
            }
            ConversationShape::Prompt(field, _) | ConversationShape::Templated(field, _) => {
                count(field)
            }
        })
    }

    /// Checks that each message is an object or a text, and that the output limit is a number.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Ok(ConversationShape::MessageList(messages) | ConversationShape::Apart(_, messages)) =
            self.conversation()
            && let Some(Value::Array(list)) = self.at(messages.list)
            && !list.iter().all(|message| message.is_object() || message.is_string())
        {
            return Err(format!("expected objects in `{}`", messages.list));
        }
        let is_odd = |cap: &&&str| {
            self.at(cap).is_some_and(|value| !value.is_null() && value.as_u64().is_none())
        };
        match self.profile.caps.iter().find(is_odd) {
            Some(cap) => Err(format!("expected a whole number, 0 or more, in `{cap}`")),
            None => Ok(()),
        }
    }

    /// Appends the answer so far, if any, and then the request to the model.
    pub(super) fn say(&mut self, answer: &str, role: Role, ask: &str) -> Result<(), Impossible> {
        match self.conversation()? {
            ConversationShape::MessageList(messages) => {
                if !answer.trim_end().is_empty() {
                    self.add(messages, Speaker::Assistant, answer)?;
                }
                self.add(messages, Speaker::Asker(role), ask)
            }
            ConversationShape::Apart(message, messages) => {
                self.say_apart(message, messages, answer, ask)
            }
            ConversationShape::Prompt(field, _) | ConversationShape::Templated(field, _) => {
                self.append(field, &format!("\n\n{ask}"))
            }
        }
    }

    fn say_apart(
        &mut self,
        message: &'static str,
        messages: MessageList,
        answer: &str,
        ask: &str,
    ) -> Result<(), Impossible> {
        if answer.trim_end().is_empty() {
            return self.append(message, &format!("\n\n{ask}"));
        }
        let asked = self.request.find(message).map(|span| self.request.raw(&span).to_owned());
        let asked = asked.unwrap_or_else(|| "null".to_owned());
        if !self.has(messages.list) {
            self.put(messages.list, json!([]))?;
        }
        for (role, content) in [(messages.user, asked), (messages.assistant, quoted(answer))] {
            let list = self.list(messages)?;
            self.request.push(&list, &message_of(messages, role, &content));
        }
        self.put(message, json!(ask))
    }

    fn prefill_message(
        &mut self,
        messages: MessageList,
        prefill: Prefill,
        text: &str,
    ) -> Result<(), Impossible> {
        let list = self.list(messages)?;
        // If the reply repeats the caller's own prefill, the text so far contains it already.
        let last = self.last_message(&list);
        let own = last.and_then(|message| self.content_of(&message, messages, messages.assistant));
        let own = own.map(|content| self.request.value(&content));
        let own = own.as_ref().and_then(Value::as_str);
        if prefill.echoes == Echo::Always && own.is_some_and(|own| text.starts_with(own)) {
            self.request.pop(&list);
        }
        self.add(messages, Speaker::Assistant, text)?;
        if let Some(flag) = prefill.message_flag {
            let list = self.list(messages)?;
            let message = self.last_message(&list);
            message
                .and_then(|message| self.request.put_in(&message, flag, "true"))
                .ok_or(Impossible::Strange { field: messages.list })?;
        }
        Ok(())
    }

    /// Appends to the text that the model continues. If replies repeat that text, the answer so far
    /// begins with it already.
    fn prefill_prompt(
        &mut self,
        field: &'static str,
        echo: &str,
        text: &str,
    ) -> Result<(), Impossible> {
        let own = self.at(field);
        let own = own.as_ref().and_then(Value::as_str).unwrap_or_default();
        let new = text.strip_prefix(own).filter(|_| self.is_true(echo)).unwrap_or(text).to_owned();
        self.append(field, &new)
    }

    /// Forces the tool. Returns the field that forces it, or why it cannot be forced.
    pub(super) fn force(
        &mut self,
        model: &str,
        tool: &str,
    ) -> Result<Result<&'static str, &'static str>, Impossible> {
        let forced_tools = self.profile.request_shape.forced_tools;
        let Some(force) = forced_tools.iter().find(|force| self.has(force.tools)) else {
            let declared = self.profile.request_shape.tools.iter().any(|field| self.has(field));
            let why = "this host does not accept a tool choice";
            return if declared { Ok(Err(why)) } else { Err(Impossible::NoTools) };
        };
        if !self.at(force.tools).is_some_and(|tools| declares(&tools, tool)) {
            return Ok(Err("the request does not declare it"));
        }
        if !is_of(model, force.models) {
            return Ok(Err("this model does not accept a tool choice"));
        }
        if let Some(restriction) = self.restricted_by(force.restrictions) {
            return Ok(Err(restriction.because));
        }
        self.put(force.field, (force.value)(tool))?;
        Ok(Ok(force.field))
    }

    /// Sets the temperature to 0, if that is allowed.
    pub(super) fn cool(&mut self, model: &str) -> Result<bool, Impossible> {
        let Temperature { field, refused_by, only_if_sent } =
            self.profile.request_shape.temperature;
        let refused = refused_by.iter().any(|known| model.contains(known));
        if field.is_empty() || refused || only_if_sent && !self.has(field) {
            return Ok(false);
        }
        // If thinking forbids forcing a tool, it forbids this too.
        let restrictions =
            self.profile.request_shape.forced_tools.iter().flat_map(|force| force.restrictions);
        if restrictions.into_iter().any(|restriction| self.is_restricted_by(restriction)) {
            return Ok(false);
        }
        self.put(field, json!(0))?;
        Ok(true)
    }

    pub(super) fn tune(
        mut self,
        field: &'static str,
        from: Value,
        to: Value,
    ) -> Result<NextRequest, Impossible> {
        let was = if from.is_null() { String::new() } else { format!(" instead of {from}") };
        let sentence = format!("`{field}` is set to {to}{was} to reduce reasoning");
        self.put(field, to.clone())?;
        self.done(RequestChange::Effort { field: field.to_owned(), from, to }, sentence)
    }

    pub(super) fn unsaid(&self, scale: Scale) -> Option<Value> {
        match scale {
            Scale::Words { unsaid, given, .. } => {
                let said = |(field, word): (_, &str)| self.at(field) == Some(json!(word));
                given.is_none_or(said).then_some(unsaid).flatten().map(|word| json!(word))
            }
            Scale::Tokens { unsaid, .. } => unsaid.map(|tokens| json!(tokens)),
            Scale::Default(_, off) => Some(json!(off)),
            Scale::Switch(..) | Scale::Flag => None,
        }
    }

    /// Returns the way to resume an answer to this request. A text prompt needs no rule.
    pub(super) fn rule(&self, model: &str) -> Result<Resume, Impossible> {
        let rule = self.profile.resume_for(model);
        let hinted = matches!(rule, Resume::Hint(_));
        let is_text = match self.profile.request_shape.conversation {
            [] => false,
            _ if !hinted => false,
            _ => match self.conversation()? {
                ConversationShape::Prompt(..) => true,
                ConversationShape::Templated(_, raw) => self.is_true(raw),
                ConversationShape::MessageList(_) | ConversationShape::Apart(..) => false,
            },
        };
        Ok(if is_text { Resume::Prefill(TRAILING) } else { rule })
    }

    fn conversation(&self) -> Result<ConversationShape, Impossible> {
        let all = self.profile.request_shape.conversation;
        let first = all.first().ok_or_else(|| unsupported(self.profile, "adding messages"))?;
        let here = all.iter().find(|conversation| self.has(conversation.field()));
        here.copied().ok_or(Impossible::Strange { field: first.field() })
    }

    /// Returns the list of messages. A string in its place becomes the user's message.
    fn list(&mut self, messages: MessageList) -> Result<Span, Impossible> {
        let strange = Impossible::Strange { field: messages.list };
        let Some(mut list) = self.request.find(messages.list) else { return Err(strange) };
        if self.request.raw(&list).starts_with('"') {
            let message = message_of(messages, messages.user, self.request.raw(&list));
            let made = format!("[{message}]");
            self.request.replace(&list, &made);
            list = list.start..list.start + made.len();
        }
        if self.request.raw(&list).starts_with('[') { Ok(list) } else { Err(strange) }
    }

    fn last_message(&self, list: &Span) -> Option<Span> {
        self.request.items(list)?.last().cloned()
    }

    /// Returns the content of a message, if it has this role.
    fn content_of(&self, message: &Span, messages: MessageList, role: &str) -> Option<Span> {
        let own = self.request.member(message, messages.role)?;
        let same = self.request.value(&own) == role;
        self.request.member(message, messages.content).filter(|_| same)
    }

    /// Adds text to a list of messages. It extends the last message if the role is the same, since
    /// many hosts reject two in a row.
    fn add(
        &mut self,
        messages: MessageList,
        speaker: Speaker,
        text: &str,
    ) -> Result<(), Impossible> {
        let role = match speaker {
            Speaker::Assistant => messages.assistant,
            Speaker::Asker(Role::User) => messages.user,
            Speaker::Asker(role @ (Role::System | Role::Developer)) => role.name(),
        };
        let list = self.list(messages)?;
        let last = self.last_message(&list);
        let content = last.and_then(|message| self.content_of(&message, messages, role));
        let part = || (messages.part)(speaker, text).to_string();
        let kind = content.as_ref().and_then(|content| self.request.raw(content).chars().next());
        match (content, kind) {
            (Some(content), Some('"')) => {
                let space = if speaker == Speaker::Assistant { "" } else { "\n\n" };
                self.request.append(&content, &format!("{space}{text}"));
            }
            (Some(content), Some('[')) => self.request.push(&content, &part()),
            _ => {
                let content = if messages.plain { quoted(text) } else { format!("[{}]", part()) };
                self.request.push(&list, &message_of(messages, role, &content));
            }
        }
        Ok(())
    }

    /// Appends to the string in this field, or to the only string in its list.
    fn append(&mut self, field: &'static str, text: &str) -> Result<(), Impossible> {
        let strange = || Impossible::Strange { field };
        let mut at = self.request.find(field).ok_or_else(strange)?;
        if let Some(items) = self.request.items(&at) {
            let [only] = items.as_slice() else { return Err(strange()) };
            at = only.clone();
        }
        self.request.append(&at, text).ok_or_else(strange)
    }

    fn restricted_by(&self, restrictions: &'static [Restriction]) -> Option<&'static Restriction> {
        restrictions.iter().find(|restriction| self.is_restricted_by(restriction))
    }

    fn is_restricted_by(&self, restriction: &Restriction) -> bool {
        match self.at(restriction.field) {
            None | Some(Value::Null) => restriction.by_default,
            Some(Value::Bool(on)) => on != restriction.fine.contains(&"true"),
            Some(Value::String(word)) => !restriction.fine.contains(&word.as_str()),
            Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => true,
        }
    }

    fn is_true(&self, field: &str) -> bool {
        self.at(field) == Some(Value::Bool(true))
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.request.find(field).is_some_and(|span| self.request.raw(&span) != "null")
    }

    pub(super) fn at(&self, path: &str) -> Option<Value> {
        self.request.find(path).map(|span| self.request.value(&span))
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers make the value for this")]
    pub(super) fn put(&mut self, path: &'static str, value: Value) -> Result<(), Impossible> {
        self.put_raw(path, &value.to_string())
    }

    fn put_raw(&mut self, path: &'static str, json: &str) -> Result<(), Impossible> {
        self.request.put(path, json).ok_or(Impossible::Strange { field: path })
    }

    fn remove(&mut self, field: &str) {
        self.request.remove(field);
    }
}

impl ConversationShape {
    pub(super) fn field(&self) -> &'static str {
        match self {
            Self::MessageList(messages) => messages.list,
            Self::Apart(field, _) | Self::Prompt(field, _) | Self::Templated(field, _) => field,
        }
    }
}

fn message_of(messages: MessageList, role: &str, content: &str) -> String {
    let kind = messages.item_type.map(|kind| format!("\"type\":{},", quoted(kind)));
    let kind = kind.unwrap_or_default();
    let (role_key, content_key) = (quoted(messages.role), quoted(messages.content));
    format!("{{{kind}{role_key}:{},{content_key}:{content}}}", quoted(role))
}

fn quoting(hint: &str, text: &str) -> String {
    format!(
        "{hint}\n\nThe previous response ended with:\n<previous_response_end>\n{text}\n</previous_response_end>"
    )
}

/// Returns the last characters of a text.
fn tail(text: &str, characters: usize) -> &str {
    let start = characters.checked_sub(1).and_then(|back| text.char_indices().rev().nth(back));
    match start {
        Some((start, _)) => text.get(start..).unwrap_or(text),
        None if characters == 0 => "",
        None => text,
    }
}

/// Reports whether a tool of this name is declared at any depth.
fn declares(tools: &Value, tool: &str) -> bool {
    match tools {
        Value::Array(tools) => tools.iter().any(|inner| declares(inner, tool)),
        Value::Object(fields) => {
            fields.get(TOOL_NAME).and_then(Value::as_str) == Some(tool)
                || fields.values().any(|inner| declares(inner, tool))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the next lower value, if there is one.
pub(super) fn lower(scale: Scale, from: &Value) -> Option<Value> {
    match scale {
        Scale::Words { words, .. } => lower_word(words, from.as_str()?),
        Scale::Tokens { least, unsaid } => match from.as_u64() {
            Some(tokens) => (tokens > least).then(|| json!((tokens / 2).max(least))),
            None => from.is_number().then(|| json!(unsaid.unwrap_or(least))),
        },
        Scale::Switch(on, off) | Scale::Default(on, off) => {
            (from.as_str() == Some(on)).then(|| json!(off))
        }
        Scale::Flag => (from == &Value::Bool(true)).then_some(Value::Bool(false)),
    }
}

fn lower_word(words: &[&str], from: &str) -> Option<Value> {
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(from))?;
    let to = words.get(at + 1)?;
    let shouts = from.chars().all(|letter| !letter.is_lowercase());
    Some(if shouts { json!(to.to_uppercase()) } else { json!(to) })
}

pub(super) fn is_of(model: &str, models: &[&str]) -> bool {
    models.is_empty() || models.iter().any(|known| model.contains(known))
}

pub(super) fn unsupported(profile: &Profile, what: &'static str) -> Impossible {
    Impossible::Unsupported { wire: profile.dialect.id, what }
}

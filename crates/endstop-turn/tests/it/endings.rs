//! Hand-made endings, for tests that read no bytes.

use endstop::{Closed, Confidence, Ending, Fault, FaultKind, Reason, Said, Shown, Usage};

/// The content of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Text,
    Nothing,
    Reasoning,
    Call,
    CutCall,
}

pub(crate) const HOLDS: [Holds; 5] =
    [Holds::Text, Holds::Nothing, Holds::Reasoning, Holds::Call, Holds::CutCall];

impl Holds {
    pub(crate) fn shown(self) -> Shown {
        let mut shown = Shown::default();
        shown.text = matches!(self, Self::Text | Self::Call | Self::CutCall);
        shown.reasoning = matches!(self, Self::Reasoning);
        shown.tool_calls = u32::from(matches!(self, Self::Call | Self::CutCall));
        shown.unfinished_tool_calls = u32::from(matches!(self, Self::CutCall));
        shown
    }
}

pub(crate) fn ending(reason: Reason, confidence: Confidence, shown: Shown) -> Ending {
    let closed = if reason == Reason::Cut { Closed::Reset } else { Closed::Proven };
    let mut ending = Ending::new(reason, confidence, closed);
    let sentence = format!("the provider said `{}`", reason.name());
    let said = Some(Said::new("finish_reason", reason.name()));
    for choice in &mut ending.choices {
        choice.said.clone_from(&said);
        choice.shown = shown;
        choice.sentence.clone_from(&sentence);
    }
    ending.provider = "acme".to_owned();
    ending.dialect = "acme-chat".into();
    ending.model = Some("m".to_owned());
    ending.said = said;
    ending.shown = shown;
    ending.sentence = sentence;
    ending
}

/// Creates an ending with high confidence and text.
pub(crate) fn plain(reason: Reason) -> Ending {
    ending(reason, Confidence::High, Holds::Text.shown())
}

/// Changes an ending.
pub(crate) fn with(mut ending: Ending, change: impl FnOnce(&mut Ending)) -> Ending {
    change(&mut ending);
    ending
}

pub(crate) fn used(ending: Ending, input: u64, output: u64) -> Ending {
    let usage = Usage { input: Some(input), output: Some(output), ..ending.usage };
    with(ending, |it| {
        it.usage = usage;
    })
}

pub(crate) fn failed(kind: FaultKind) -> Ending {
    let mut fault = Fault::default();
    fault.kind = kind;
    let nothing = ending(Reason::Failed, Confidence::High, Shown::default());
    with(nothing, |it| {
        it.fault = Some(fault);
        it.said = None;
        it.closed = Closed::Error;
    })
}

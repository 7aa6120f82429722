//! Changes what happens after a response: limits, a fallback model, and a function that decides.

use endstop::Reason;
use endstop_client::{Client, LoopState};
use endstop_turn::policy::{Action, Decision, Policy, RuleChange};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), endstop_client::Error> {
    let mut policy = Policy::careful();
    policy.agent.continuation_max_attempts = 5;
    policy.fallback_models = vec!["anthropic/claude-sonnet-5".to_owned()];
    let other_model = RuleChange { action: Some(Action::OtherModel), ..RuleChange::default() };
    policy.rules.insert(Reason::Refused, other_model);
    let client = Client::builder().env().policy(policy).on_response(|state: &LoopState<'_>| {
        let limits = state.signals.iter().filter(|signal| signal.ending == Reason::OutputLimit);
        (limits.count() > 2).then(|| Decision::new(Action::Stop, "two continuations are enough"))
    });
    let model = std::env::args().nth(1).unwrap_or_else(|| "openai/length".to_owned());
    let reply = client.build()?.chat(&model, "Tell a long story.").await?;
    println!("{:?}: {} pieces", reply.outcome.terminated, reply.pieces.len());
    Ok(())
}

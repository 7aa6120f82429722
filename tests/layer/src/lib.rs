//! Endstop's layer under another client: `async-openai` takes its HTTP responses from a `tower` service, and the
//! service watches them.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::middleware::{HttpRequestFactory, ReqwestService};
use endstop::RequestInfo;
use endstop_client::layer;
use tower::ServiceExt as _;

/// Returns a client whose responses end with an error if they are not complete.
#[must_use]
pub fn watched(config: OpenAIConfig) -> Client<OpenAIConfig> {
    let http = ReqwestService::default();
    let service = tower::service_fn(move |request: HttpRequestFactory| {
        let http = http.clone();
        async move {
            let response = http.oneshot(request).await?;
            Ok::<_, OpenAIError>(layer::watched(response, RequestInfo::default()))
        }
    });
    Client::with_config(config).with_http_service(service)
}

#[cfg(test)]
mod tests {
    use async_openai::types::chat::CreateChatCompletionRequest;
    use endstop_sim::{Options, Sim};
    use futures_util::StreamExt as _;

    use super::*;

    /// Streams an answer. Returns its text and the error at its end.
    async fn ask(client: &Client<OpenAIConfig>, model: &str) -> (String, Option<String>) {
        let request = serde_json::json!({
            "model": model, "stream": true, "messages": [{"role": "user", "content": "Hi"}],
        });
        let request: CreateChatCompletionRequest = serde_json::from_value(request).unwrap();
        let mut stream = client.chat().create_stream(request).await.unwrap();
        let mut text = String::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => event.choices.iter().for_each(|choice| {
                    text.push_str(choice.delta.content.as_deref().unwrap_or_default());
                }),
                Err(error) => return (text, Some(format!("{error:?}"))),
            }
        }
        (text, None)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_that_ends_quietly_is_an_error_with_the_layer() {
        rustls::crypto::ring::default_provider().install_default().unwrap();
        let sim = Sim::start(Options::default()).await.unwrap();
        let url = format!("{}/openai/v1", sim.url());
        let config = || OpenAIConfig::new().with_api_base(&url).with_api_key("canary");
        let (bare, watched) = (Client::with_config(config()), watched(config()));
        for scenario in ["cut-before-word", "cut-in-tool-call", "cut-after-call"] {
            let (text, error) = ask(&bare, scenario).await;
            assert_eq!(error, None, "{scenario}: the client alone takes it for a success");
            let (same, error) = ask(&watched, scenario).await;
            // This client tells the kind of an error and not its cause.
            let error = error.unwrap_or_else(|| panic!("{scenario}: no error"));
            assert!(error.contains("Transport error"), "{scenario}: {error}");
            assert_eq!(same, text, "{scenario}: what came is passed on");
        }
        // Healthy responses pass unchanged, and so do endings that the provider says.
        for scenario in ["complete", "length", "tool-call", "stop-sequence"] {
            assert_eq!(ask(&watched, scenario).await, ask(&bare, scenario).await, "{scenario}");
            assert_eq!(ask(&watched, scenario).await.1, None, "{scenario}");
        }
    }
}

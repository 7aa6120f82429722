//! Watches a response that another HTTP client asked for: `cargo run -p endstop-client --features layer --example layer`.
//!
//! Start `endstop sim` first. `ENDSTOP_BASE_URL` names it, if it is not on its usual port. `tests/layer` does the same under `async-openai`.

use endstop::RequestInfo;
use endstop_client::layer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "cut-before-word".to_owned());
    // HTTP clients without a TLS library of their own need one, even for URLs without TLS.
    rustls::crypto::ring::default_provider().install_default().map_err(|_| "TLS is set up")?;
    let body = format!(r#"{{"model":"{model}","stream":true,"messages":[]}}"#);
    let http = reqwest::Client::new();
    let sim = std::env::var("ENDSTOP_BASE_URL").unwrap_or("http://127.0.0.1:4190".to_owned());
    let request = http.post(format!("{sim}/openai/v1/chat/completions")).body(body);
    let response = layer::watched(request.send().await?, RequestInfo::default());
    match response.text().await {
        Ok(text) => println!("complete: {} bytes", text.len()),
        Err(error) => {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            println!("{cause}");
        }
    }
    Ok(())
}

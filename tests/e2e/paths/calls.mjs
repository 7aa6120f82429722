// Makes one call with one SDK: `calls.mjs NAME SETTING URL`. The URL is empty if SETTING is a variable.

const apiKey = "test-key";
const messages = [{ role: "user", content: "Hi" }];
const chat = { model: "m", messages };
const once = { apiKey, maxRetries: 0 };

/** Asks a model of the AI SDK. */
async function generate(model) {
  const { generateText } = await import("ai");
  await generateText({ model, prompt: "Hi", maxRetries: 0 });
}

const calls = {
  "openai (npm)": async () => {
    const { default: OpenAI } = await import("openai");
    await new OpenAI(once).chat.completions.create(chat);
  },
  "openai.AzureOpenAI (npm)": async (url) => {
    const { AzureOpenAI } = await import("openai");
    const client = new AzureOpenAI({ ...once, baseURL: url, apiVersion: "2024-10-21" });
    await client.chat.completions.create(chat);
  },
  "@anthropic-ai/sdk (npm)": async () => {
    const { default: Anthropic } = await import("@anthropic-ai/sdk");
    await new Anthropic(once).messages.create({ ...chat, max_tokens: 9 });
  },
  "@anthropic-ai/bedrock-sdk (npm)": async () => {
    const { AnthropicBedrock } = await import("@anthropic-ai/bedrock-sdk");
    await new AnthropicBedrock({ maxRetries: 0 }).messages.create({ ...chat, max_tokens: 9 });
  },
  "@anthropic-ai/vertex-sdk (npm)": async () => {
    const { AnthropicVertex } = await import("@anthropic-ai/vertex-sdk");
    const auth = { getRequestHeaders: async () => ({ authorization: "Bearer t" }) };
    const authClient = { ...auth, projectId: "p" };
    const client = new AnthropicVertex({
      projectId: "p", region: "us-east5", authClient, maxRetries: 0,
    });
    await client.messages.create({ ...chat, max_tokens: 9 });
  },
  "@google/genai (npm)": async () => {
    const { GoogleGenAI } = await import("@google/genai");
    await new GoogleGenAI({ apiKey, vertexai: false }).models.generateContent({ model: "m", contents: "Hi" });
  },
  "@google/genai Vertex (npm)": async () => {
    const { GoogleGenAI } = await import("@google/genai");
    const authClient = { getRequestHeaders: async () => new Headers({ authorization: "Bearer t" }) };
    const client = new GoogleGenAI({
      vertexai: true, project: "p", location: "us-east5", googleAuthOptions: { authClient },
    });
    await client.models.generateContent({ model: "m", contents: "Hi" });
  },
  "@aws-sdk/client-bedrock-runtime (npm)": async () => {
    const { BedrockRuntimeClient, ConverseCommand } = await import("@aws-sdk/client-bedrock-runtime");
    const content = [{ text: "Hi" }];
    const command = new ConverseCommand({ modelId: "m", messages: [{ role: "user", content }] });
    // The logger speaks only HTTP/1.1.
    const { NodeHttpHandler } = await import("@smithy/node-http-handler");
    const requestHandler = new NodeHttpHandler();
    await new BedrockRuntimeClient({ maxAttempts: 1, requestHandler }).send(command);
  },
  "groq-sdk (npm)": async () => {
    const { default: Groq } = await import("groq-sdk");
    await new Groq(once).chat.completions.create(chat);
  },
  "@cerebras/cerebras_cloud_sdk (npm)": async () => {
    const { default: Cerebras } = await import("@cerebras/cerebras_cloud_sdk");
    await new Cerebras(once).chat.completions.create(chat);
  },
  "writer-sdk (npm)": async () => {
    const { default: Writer } = await import("writer-sdk");
    await new Writer(once).chat.chat(chat);
  },
  "together-ai (npm)": async () => {
    const { default: Together } = await import("together-ai");
    await new Together(once).chat.completions.create(chat);
  },
  "@perplexity-ai/perplexity_ai (npm)": async () => {
    const { default: Perplexity } = await import("@perplexity-ai/perplexity_ai");
    await new Perplexity(once).chat.completions.create(chat);
  },
  "cohere-ai (npm)": async (url) => {
    const { CohereClientV2 } = await import("cohere-ai");
    await new CohereClientV2({ token: apiKey, environment: url || undefined }).chat(chat, { maxRetries: 0 });
  },
  "@mistralai/mistralai (npm)": async (url) => {
    const { Mistral } = await import("@mistralai/mistralai");
    await new Mistral({ apiKey, serverURL: url }).chat.complete(chat);
  },
  "ollama (npm)": async (url) => {
    const { Ollama } = await import("ollama");
    await new Ollama({ host: url || undefined }).chat(chat);
  },
  "replicate (npm)": async (url) => {
    const { default: Replicate } = await import("replicate");
    await new Replicate({ auth: apiKey, baseUrl: url }).run("owner/name", { input: { prompt: "Hi" } });
  },
  "@huggingface/inference (npm)": async (url) => {
    const { InferenceClient } = await import("@huggingface/inference");
    await new InferenceClient(apiKey, { endpointUrl: url }).chatCompletion(chat);
  },
  "@openrouter/sdk (npm)": async () => {
    const { OpenRouter } = await import("@openrouter/sdk");
    await new OpenRouter({ apiKey }).chat.send({ chatRequest: chat });
  },
  "@ai-sdk/openai (npm)": async () => {
    const { createOpenAI } = await import("@ai-sdk/openai");
    await generate(createOpenAI({ apiKey }).chat("m"));
  },
  "@ai-sdk/anthropic (npm)": async (url) => {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    await generate(createAnthropic({ apiKey, baseURL: url || undefined })("m"));
  },
  "@ai-sdk/google (npm)": async (url) => {
    const { createGoogleGenerativeAI } = await import("@ai-sdk/google");
    await generate(createGoogleGenerativeAI({ apiKey, baseURL: url })("m"));
  },
  "@ai-sdk/openai-compatible (npm)": async (url) => {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    await generate(createOpenAICompatible({ name: "n", apiKey, baseURL: url })("m"));
  },
};

const [name, , url] = process.argv.slice(2);
await calls[name](url);

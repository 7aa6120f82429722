"""Makes one call with one SDK: `calls.py NAME SETTING URL`. The URL is empty if SETTING is a variable."""

import sys

KEY = "test-key"
MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = {"model": "m", "messages": MESSAGES}


def openai(url):
    from openai import OpenAI

    OpenAI(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def azure_openai(url):
    from openai import AzureOpenAI

    client = AzureOpenAI(api_key=KEY, api_version="2024-10-21", max_retries=0)
    client.chat.completions.create(**CHAT)


def anthropic(url):
    from anthropic import Anthropic

    Anthropic(api_key=KEY, max_retries=0).messages.create(max_tokens=9, **CHAT)


def anthropic_bedrock(url):
    from anthropic import AnthropicBedrock

    AnthropicBedrock(max_retries=0).messages.create(max_tokens=9, **CHAT)


def anthropic_vertex(url):
    from anthropic import AnthropicVertex

    client = AnthropicVertex(
        project_id="p", region="us-east5", access_token="t", max_retries=0
    )
    client.messages.create(max_tokens=9, **CHAT)


def google_genai(url):
    from google import genai

    client = genai.Client(api_key=KEY, vertexai=False)
    client.models.generate_content(model="m", contents="Hi")


def google_genai_vertex(url):
    from google import genai
    from google.oauth2.credentials import Credentials

    client = genai.Client(
        vertexai=True, project="p", location="us-east5", credentials=Credentials("t")
    )
    client.models.generate_content(model="m", contents="Hi")


def groq(url):
    from groq import Groq

    Groq(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def cerebras(url):
    from cerebras.cloud.sdk import Cerebras

    Cerebras(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def writer(url):
    from writerai import Writer

    Writer(api_key=KEY, max_retries=0).chat.chat(**CHAT)


def together(url):
    from together import Together

    Together(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def fireworks(url):
    from fireworks import Fireworks

    Fireworks(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def perplexity(url):
    from perplexity import Perplexity

    Perplexity(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def dashscope(url):
    import dashscope

    print(dashscope.Generation.call(model="m", messages=MESSAGES, api_key=KEY))


def sambanova(url):
    from sambanova import SambaNova

    SambaNova(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def mistralai(url):
    from mistralai.client import Mistral

    Mistral(api_key=KEY, server_url=url).chat.complete(**CHAT)


def cohere(url):
    import cohere

    cohere.ClientV2(api_key=KEY).chat(**CHAT)


def ollama(url):
    import ollama

    ollama.Client().chat(**CHAT)


def ai21(url):
    from ai21 import AI21Client
    from ai21.models.chat import UserMessage

    client = AI21Client(api_key=KEY, num_retries=0)
    client.chat.completions.create(model="m", messages=[UserMessage(content="Hi")])


def zai(url):
    from zai import ZaiClient

    ZaiClient(api_key=KEY, max_retries=0).chat.completions.create(**CHAT)


def replicate(url):
    import replicate

    replicate.Client(api_token=KEY).run("owner/name", input={"prompt": "Hi"})


def huggingface_hub(url):
    from huggingface_hub import InferenceClient

    InferenceClient(token=KEY, base_url=url).chat_completion(MESSAGES, model="m")


def boto3(url):
    import boto3

    client = boto3.client("bedrock-runtime")
    client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}])


def nvidia(url):
    from langchain_nvidia_ai_endpoints import ChatNVIDIA

    ChatNVIDIA(model="m", api_key=KEY).invoke("Hi")


def openrouter(url):
    from openrouter import OpenRouter

    OpenRouter(api_key=KEY, server_url=url).chat.send(**CHAT)


def langchain_xai(url):
    from langchain_xai import ChatXAI

    ChatXAI(model="m", api_key=KEY, max_retries=0).invoke("Hi")


def litellm(url):
    import litellm

    prefix = sys.argv[2].split("_")[0].lower()  # OPENAI_BASE_URL: openai/m
    litellm.completion(f"{prefix}/m", messages=MESSAGES, api_key=KEY, num_retries=0)


CALLS = {
    "openai": openai,
    "openai.AzureOpenAI": azure_openai,
    "anthropic": anthropic,
    "anthropic.AnthropicBedrock": anthropic_bedrock,
    "anthropic.AnthropicVertex": anthropic_vertex,
    "google-genai": google_genai,
    "google-genai Vertex": google_genai_vertex,
    "groq": groq,
    "cerebras-cloud-sdk": cerebras,
    "writer-sdk": writer,
    "together": together,
    "fireworks-ai": fireworks,
    "perplexityai": perplexity,
    "dashscope": dashscope,
    "sambanova": sambanova,
    "mistralai": mistralai,
    "cohere": cohere,
    "ollama": ollama,
    "ai21": ai21,
    "zai-sdk": zai,
    "replicate": replicate,
    "huggingface_hub": huggingface_hub,
    "boto3": boto3,
    "langchain-nvidia-ai-endpoints": nvidia,
    "openrouter": openrouter,
    "langchain-xai": langchain_xai,
    "litellm": litellm,
}


if __name__ == "__main__":
    CALLS[sys.argv[1]](sys.argv[3])

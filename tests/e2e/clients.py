"""Runs one Python SDK through its calls and scenarios; see `cells.py` for what is printed."""

import json
from functools import partial

from cells import (
    QUESTION,
    TIMEOUT,
    TOOL_ABOUT,
    TOOL_NAME,
    TOOL_SCHEMA,
    arguments,
    roots,
    run_all,
)

MESSAGES = [{"role": "user", "content": QUESTION}]
FUNCTION = {"name": TOOL_NAME, "description": TOOL_ABOUT, "parameters": TOOL_SCHEMA}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]


class Seen:
    """What a caller saw of a turn: its text, the word for its end, its tool calls."""

    def __init__(self):
        self.text, self.word, self.calls = "", None, {}

    def add_text(self, text):
        self.text += text or ""

    def add_word(self, word):
        if word is not None:
            self.word = str(getattr(word, "value", word))

    def add_call(self, key, name=None, args=None):
        call = self.calls.setdefault(key, {"name": "", "args": ""})
        call["name"] += name or ""
        call["args"] += args if isinstance(args, str) else json.dumps(args) if args else ""

    def facts(self):
        return {"text": self.text, "word": self.word, "calls": list(self.calls.values())}


# OpenAI


def openai_client(root):
    from openai import OpenAI

    return OpenAI(base_url=f"{root}/openai/v1", api_key="k", timeout=TIMEOUT, max_retries=0)


def chat_plain(root, model, seen):
    answer = openai_client(root).chat.completions.create(
        model=model, messages=MESSAGES, tools=CHAT_TOOLS
    )
    see_chat(answer.choices[0], answer.choices[0].message, seen)


def chat_raw(root, model, seen):
    stream = openai_client(root).chat.completions.create(
        model=model, messages=MESSAGES, tools=CHAT_TOOLS, stream=True
    )
    for chunk in stream:
        for choice in chunk.choices:
            see_chat(choice, choice.delta, seen)


def chat_helper(root, model, seen):
    tools = [{"type": "function", "function": {**FUNCTION, "strict": True}}]
    client = openai_client(root)
    with client.chat.completions.stream(model=model, messages=MESSAGES, tools=tools) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
        see_chat(choice, choice.message, seen)


def see_chat(choice, message, seen):
    seen.add_text(message.content)
    seen.add_word(choice.finish_reason)
    for at, call in enumerate(message.tool_calls or []):
        key = getattr(call, "index", at)
        seen.add_call(key, call.function.name, call.function.arguments)


def responses_tools(strict):
    return [{"type": "function", **FUNCTION, "strict": strict}]


def responses_plain(root, model, seen):
    see_response(
        openai_client(root).responses.create(
            model=model, input=QUESTION, tools=responses_tools(False)
        ),
        seen,
    )


def responses_raw(root, model, seen):
    stream = openai_client(root).responses.create(
        model=model, input=QUESTION, tools=responses_tools(False), stream=True
    )
    for event in stream:
        if event.type == "response.output_text.delta":
            seen.add_text(event.delta)
        elif event.type == "response.output_item.added" and event.item.type == "function_call":
            seen.add_call(event.output_index, event.item.name)
        elif event.type == "response.function_call_arguments.delta":
            seen.add_call(event.output_index, args=event.delta)
        elif event.type in ("response.completed", "response.incomplete", "response.failed"):
            seen.add_word(event.response.status)


def responses_helper(root, model, seen):
    client = openai_client(root)
    with client.responses.stream(
        model=model, input=QUESTION, tools=responses_tools(True)
    ) as stream:
        for _ in stream:
            pass
        see_response(stream.get_final_response(), seen)


def see_response(answer, seen):
    seen.add_text(answer.output_text)
    seen.add_word(answer.status)
    for at, item in enumerate(answer.output):
        if item.type == "function_call":
            seen.add_call(at, item.name, item.arguments)


# Anthropic

ANTHROPIC_TOOLS = [{"name": TOOL_NAME, "description": TOOL_ABOUT, "input_schema": TOOL_SCHEMA}]


def anthropic_call(root, model):
    from anthropic import Anthropic

    client = Anthropic(base_url=f"{root}/anthropic", api_key="k", timeout=TIMEOUT, max_retries=0)
    asked = dict(model=model, max_tokens=512, messages=MESSAGES, tools=ANTHROPIC_TOOLS)
    return client.messages, asked


def anthropic_plain(root, model, seen):
    messages, asked = anthropic_call(root, model)
    see_message(messages.create(**asked), seen)


def anthropic_raw(root, model, seen):
    messages, asked = anthropic_call(root, model)
    for event in messages.create(**asked, stream=True):
        if event.type == "content_block_start" and event.content_block.type == "tool_use":
            seen.add_call(event.index, event.content_block.name)
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            seen.add_text(event.delta.text)
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            seen.add_call(event.index, args=event.delta.partial_json)
        elif event.type == "message_delta":
            seen.add_word(event.delta.stop_reason)


def anthropic_helper(root, model, seen):
    messages, asked = anthropic_call(root, model)
    with messages.stream(**asked) as stream:
        see_message(stream.get_final_message(), seen)


def see_message(message, seen):
    seen.add_word(message.stop_reason)
    for at, block in enumerate(message.content):
        if block.type == "text":
            seen.add_text(block.text)
        elif block.type == "tool_use":
            seen.add_call(at, block.name, block.input)


# Gemini


def gemini_call(root, model):
    from google import genai
    from google.genai import types

    options = types.HttpOptions(
        base_url=f"{root}/gemini",
        api_version="v1beta",
        timeout=TIMEOUT * 1000,
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    tool = types.FunctionDeclaration(
        name=TOOL_NAME, description=TOOL_ABOUT, parameters_json_schema=TOOL_SCHEMA
    )
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[tool])])
    client = genai.Client(api_key="k", http_options=options)
    return client, dict(model=f"gemini-{model}", contents=QUESTION, config=config)


def gemini_plain(root, model, seen):
    client, asked = gemini_call(root, model)
    see_candidates(client.models.generate_content(**asked), seen)


def gemini_stream(root, model, seen):
    client, asked = gemini_call(root, model)
    for chunk in client.models.generate_content_stream(**asked):
        see_candidates(chunk, seen)


def see_candidates(answer, seen):
    for candidate in answer.candidates or []:
        seen.add_word(candidate.finish_reason)
        for part in (candidate.content and candidate.content.parts) or []:
            seen.add_text(part.text)
            if part.function_call:
                call = part.function_call
                seen.add_call(len(seen.calls), call.name, call.args)


# Bedrock


def bedrock_call(root, model, bearer):
    import boto3
    from botocore.config import Config

    client = boto3.session.Session().client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=root,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT),
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    if bearer:
        client.meta.events.register_last("before-send", with_bearer)
    spec = {"name": TOOL_NAME, "description": TOOL_ABOUT, "inputSchema": {"json": TOOL_SCHEMA}}
    messages = [{"role": "user", "content": [{"text": QUESTION}]}]
    tools = {"tools": [{"toolSpec": spec}]}
    return client, dict(modelId=model, messages=messages, toolConfig=tools)


def with_bearer(request, **_):
    """boto3 sends a bearer token only over https; here it takes the place of the signature."""
    request.headers["Authorization"] = "Bearer k"


def bedrock_plain(root, model, seen, bearer=False):
    client, asked = bedrock_call(root, model, bearer)
    answer = client.converse(**asked)
    seen.add_word(answer["stopReason"])
    for at, block in enumerate(answer["output"]["message"]["content"]):
        seen.add_text(block.get("text"))
        if call := block.get("toolUse"):
            seen.add_call(at, call["name"], call["input"])


def bedrock_stream(root, model, seen, bearer=False):
    client, asked = bedrock_call(root, model, bearer)
    for event in client.converse_stream(**asked)["stream"]:
        if start := event.get("contentBlockStart"):
            seen.add_call(start["contentBlockIndex"], start["start"]["toolUse"]["name"])
        elif block := event.get("contentBlockDelta"):
            seen.add_text(block["delta"].get("text"))
            if call := block["delta"].get("toolUse"):
                seen.add_call(block["contentBlockIndex"], args=call["input"])
        elif stop := event.get("messageStop"):
            seen.add_word(stop["stopReason"])


# Mistral


def mistral_call(root, model):
    from mistralai.client import Mistral

    client = Mistral(api_key="k", server_url=f"{root}/mistral", timeout_ms=TIMEOUT * 1000)
    return client.chat, dict(model=model, messages=MESSAGES, tools=CHAT_TOOLS)


def mistral_plain(root, model, seen):
    chat, asked = mistral_call(root, model)
    choice = chat.complete(**asked).choices[0]
    see_mistral(choice, choice.message, seen)


def mistral_stream(root, model, seen):
    chat, asked = mistral_call(root, model)
    for event in chat.stream(**asked):
        for choice in event.data.choices:
            see_mistral(choice, choice.delta, seen)


def see_mistral(choice, message, seen):
    seen.add_text(message.content if isinstance(message.content, str) else "")
    seen.add_word(choice.finish_reason)
    for call in message.tool_calls or []:
        seen.add_call(call.index or 0, call.function.name, call.function.arguments)


# Cohere


def cohere_call(root, model):
    import cohere

    client = cohere.ClientV2(api_key="k", base_url=f"{root}/cohere", timeout=TIMEOUT, max_retries=0)
    return client, dict(model=model, messages=MESSAGES, tools=CHAT_TOOLS)


def cohere_plain(root, model, seen):
    client, asked = cohere_call(root, model)
    answer = client.chat(**asked)
    seen.add_word(answer.finish_reason)
    for block in answer.message.content or []:
        seen.add_text(getattr(block, "text", None))
    for at, call in enumerate(answer.message.tool_calls or []):
        seen.add_call(at, call.function.name, call.function.arguments)


def cohere_stream(root, model, seen):
    client, asked = cohere_call(root, model)
    for event in client.chat_stream(**asked):
        delta = getattr(event, "delta", None)
        if event.type == "content-delta":
            seen.add_text(delta.message.content.text)
        elif event.type == "tool-call-start":
            call = delta.message.tool_calls.function
            seen.add_call(event.index, call.name, call.arguments)
        elif event.type == "tool-call-delta":
            seen.add_call(event.index, args=delta.message.tool_calls.function.arguments)
        elif event.type == "message-end":
            seen.add_word(delta.finish_reason)


# Ollama


def ollama_call(root, model):
    import ollama

    client = ollama.Client(host=f"{root}/ollama", timeout=TIMEOUT)
    return client, dict(model=model, messages=MESSAGES, tools=CHAT_TOOLS)


def ollama_plain(root, model, seen):
    client, asked = ollama_call(root, model)
    see_ollama(client.chat(**asked), seen)


def ollama_stream(root, model, seen):
    client, asked = ollama_call(root, model)
    for line in client.chat(**asked, stream=True):
        see_ollama(line, seen)


def see_ollama(line, seen):
    seen.add_text(line.message.content)
    seen.add_word(line.done_reason or None)
    for call in line.message.tool_calls or []:
        seen.add_call(len(seen.calls), call.function.name, dict(call.function.arguments))


CLIENTS = {
    "openai": {
        ("OpenAI chat", "create"): chat_plain,
        ("OpenAI chat", "create(stream=True)"): chat_raw,
        ("OpenAI chat", "stream()"): chat_helper,
        ("OpenAI Responses", "create"): responses_plain,
        ("OpenAI Responses", "create(stream=True)"): responses_raw,
        ("OpenAI Responses", "stream()"): responses_helper,
    },
    "anthropic": {
        ("Anthropic Messages", "create"): anthropic_plain,
        ("Anthropic Messages", "create(stream=True)"): anthropic_raw,
        ("Anthropic Messages", "stream()"): anthropic_helper,
    },
    "google-genai": {
        ("Gemini", "generate_content"): gemini_plain,
        ("Gemini", "generate_content_stream"): gemini_stream,
    },
    "boto3": {
        ("Bedrock Converse", "converse"): bedrock_plain,
        ("Bedrock Converse", "converse_stream"): bedrock_stream,
    },
    "boto3, bearer token": {
        ("Bedrock Converse", "converse"): partial(bedrock_plain, bearer=True),
        ("Bedrock Converse", "converse_stream"): partial(bedrock_stream, bearer=True),
    },
    "mistralai": {
        ("Mistral", "complete"): mistral_plain,
        ("Mistral", "stream"): mistral_stream,
    },
    "cohere": {
        ("Cohere v2", "chat"): cohere_plain,
        ("Cohere v2", "chat_stream"): cohere_stream,
    },
    "ollama": {
        ("Ollama", "chat"): ollama_plain,
        ("Ollama", "chat(stream=True)"): ollama_stream,
    },
}


def cells(name, ways, scenarios):
    for (wire, how), call in CLIENTS[name].items():
        for scenario in scenarios:
            for via, root in ways.items():
                facts = dict(
                    client=f"Python {name}", wire=wire, call=how, scenario=scenario, via=via
                )
                yield facts, asking(call, base(via, root, wire), f"sim-{scenario}")


def base(via, root, wire):
    """Bedrock's base URL through the gateway names the region; the others are alike both ways."""
    if wire != "Bedrock Converse":
        return root
    return f"{root}/bedrock" if via == "direct" else f"{root}/bedrock/us-east-1"


def asking(call, root, model):
    def ask(facts):
        seen = Seen()
        try:
            call(root, model, seen)
        finally:
            facts.update(seen.facts())

    return ask


def main():
    args = arguments(__doc__)
    run_all(cells(args.name, roots(args), args.scenarios))


if __name__ == "__main__":
    main()

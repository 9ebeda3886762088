"""One request of each kind for the document. Each is answered with 200."""

from __future__ import annotations

from typing import Any

Examples = dict[str, dict[str, Any]]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = {"role": "user", "content": "What is the weather in Oslo?"}
WEATHER = "The weather in a city now."
ARGUMENTS = '{"city": "Oslo"}'
RESULT = "7 degrees, rain"


def example(summary: str, **body: Any) -> dict[str, Any]:
    """One entry of a body's examples."""
    return {"summary": summary, "value": body}


def chat_examples(model_id: str) -> Examples:
    """Of POST /v1/chat/completions."""
    function = {"name": "weather", "description": WEATHER, "parameters": SCHEMA}
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
    return {
        "question": example(
            "A question",
            model=model_id,
            messages=[
                {"role": "system", "content": "Answer in one line."},
                {"role": "user", "content": "Which planet is the largest?"},
            ],
            max_tokens=64,
        ),
        "stream": example(
            "A stream with its usage",
            messages=[{"role": "user", "content": [{"type": "text", "text": "Count to five."}]}],
            stream=True,
            stream_options={"include_usage": True},
            temperature=0.7,
            seed=1,
            stop=["six"],
        ),
        "tool": example(
            "The result of a call",
            messages=[
                QUESTION,
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": RESULT},
            ],
            tools=[{"type": "function", "function": function}],
            tool_choice="none",
        ),
    }


def completion_examples(model_id: str) -> Examples:
    """Of POST /v1/completions."""
    return {
        "text": example(
            "A text to go on with", model=model_id, prompt="The largest planet is", max_tokens=16
        ),
        "stream": example(
            "A stream", prompt=["One, two, three,"], stream=True, stop_sequences=["\n"], top_p=0.9
        ),
    }


def messages_examples(model_id: str) -> Examples:
    """Of POST /v1/messages."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": RESULT}
    return {
        "question": example(
            "A question",
            model=model_id,
            system="Answer in one line.",
            messages=[{"role": "user", "content": "Which planet is the largest?"}],
            max_tokens=64,
        ),
        "stream": example(
            "A stream with thinking",
            messages=[{"role": "user", "content": [{"type": "text", "text": "Count to five."}]}],
            max_tokens=2048,
            stream=True,
            thinking={"type": "enabled", "budget_tokens": 1024},
        ),
        "tool": example(
            "The result of a call",
            messages=[
                QUESTION,
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ],
            tools=[{"name": "weather", "description": WEATHER, "input_schema": SCHEMA}],
            tool_choice={"type": "none"},
            max_tokens=64,
        ),
    }


def count_examples(model_id: str) -> Examples:
    """Of POST /v1/messages/count_tokens."""
    return {"question": example("A question", model=model_id, messages=[QUESTION])}


def responses_examples(model_id: str) -> Examples:
    """Of POST /v1/responses."""
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": ARGUMENTS}
    return {
        "question": example(
            "A question", model=model_id, input="Which planet is the largest?", max_output_tokens=64
        ),
        "stream": example(
            "A stream",
            instructions="Answer in one line.",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "Count to five."}]}],
            stream=True,
            reasoning={"effort": "low"},
        ),
        "tool": example(
            "The result of a call",
            input=[
                QUESTION,
                call,
                {"type": "function_call_output", "call_id": "call_1", "output": RESULT},
            ],
            tools=[{"type": "function", "name": "weather", "description": WEATHER, "parameters": SCHEMA}],
            tool_choice="none",
            store=False,
        ),
    }

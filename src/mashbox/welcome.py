"""What a newcomer needs to know once the model is ready, in a form that can be copied. Pure."""

from __future__ import annotations

import ipaddress

from mashbox.config import API_KEY_VARIABLE

ELSEWHERE = "<address of this machine>"


def is_wildcard(host: str) -> bool:
    """Whether a server on `host` listens on all addresses of its machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def url_of(host: str, port: int) -> str:
    """An address that works on this machine for a server on `host`."""
    if is_wildcard(host):
        host = "127.0.0.1" if ":" not in host else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def welcome(model_id: str, slots: int, context: int, host: str, port: int, *, keyed: bool) -> str:
    """The whole text. Where there are keys, the examples name the variable that may hold one, never a key."""
    url = url_of(host, port)
    held = "1 slot" if slots == 1 else f"{slots} slots"
    each = "" if slots == 1 else " each"
    key = f'"${API_KEY_VARIABLE}"' if keyed else "any"
    header = f' \\\n                    -H "Authorization: Bearer ${API_KEY_VARIABLE}"' if keyed else ""
    own = f"\n  Your key        export {API_KEY_VARIABLE}=<one of the server's keys>" if keyed else ""
    network = f"\n  On the network  http://{ELSEWHERE}:{port}/v1" if is_wildcard(host) else ""
    return f"""
{model_id} is ready: {held} of {context} tokens{each}.

  URL             {url}/v1{network}{own}
  Try it          curl -s {url}/v1/chat/completions -H 'Content-Type: application/json'{header} \\
                    -d '{{"messages": [{{"role": "user", "content": "Name three planets."}}]}}'
  OpenAI clients  export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}
  Anthropic's     export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={key}
  Health          {url}/health
  Stop            Ctrl-C
"""

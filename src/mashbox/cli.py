"""The command line. Each option is declared once: here, or in `options.py` when several commands have it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from enum import Enum
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn, ParamSpec

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from mashbox import machine, server
from mashbox.api.settings import ServeConfig
from mashbox.catalog.available import available_memory
from mashbox.catalog.gguf import GgufModel, read_model
from mashbox.catalog.memory import (
    MemorySettings,
    check_fits,
    default_cache_ram,
    default_context,
    default_slots,
    estimate,
)
from mashbox.catalog.progress import reporter_for
from mashbox.catalog.recommended import recommended_sampling
from mashbox.catalog.resolve import ResolvedModel, list_models, pull, resolve
from mashbox.certification import certify, exact_model
from mashbox.certification_view import ProgressView, show_certificate
from mashbox.chat.formats.choose import FORMAT_NAMES
from mashbox.chat.prompt import FormatSource
from mashbox.chat.renderer import check_template
from mashbox.chat.template_source import load_template_file
from mashbox.config import API_KEY_VARIABLE, PREFILL_ROWS, LogConfig, ModelConfig, WorkerConfig
from mashbox.engine.certificate import FULL_CONTEXT, LEAST_CONTEXT
from mashbox.engine.certify.messages import GATE_SLOTS
from mashbox.engine.types import ModelFacts, Sampling
from mashbox.errors import ConfigError
from mashbox.http.allowed import allow
from mashbox.http.keys import Keys
from mashbox.http.sse import DEFAULT_LIMITS, StreamLimits
from mashbox.logs import setup as logs
from mashbox.options import (
    CacheType,
    CacheTypeK,
    CacheTypeV,
    FlashAttention,
    GpuLayers,
    ModelName,
    RopeScaling,
    Threads,
    layer_count,
)
from mashbox.welcome import welcome

app = typer.Typer(
    help="A private AI box on one machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

log = logging.getLogger(__name__)

P = ParamSpec("P")
CONFIG_ERROR = 2


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A ConfigError becomes one line on standard error and exit code 2."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except ConfigError as error:
            _fail(str(error))

    return guarded


def _fail(message: str) -> NoReturn:
    print(f"mashbox: {message}", file=sys.stderr)
    raise typer.Exit(CONFIG_ERROR)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mashbox {version('mashbox')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """A private AI box on one machine."""


class LogLevel(str, Enum):
    """How much is logged."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _check_tool_format(value: str | None) -> str | None:
    if value is not None and value not in FORMAT_NAMES:
        raise typer.BadParameter(f"use one of {', '.join(FORMAT_NAMES)}")
    return value


@app.command()
@plain_errors
def run(
    model: ModelName,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keys that clients must send, one a line, each with a tenant's name after it if it has one. "
            f"One more may be in {API_KEY_VARIABLE}. SIGHUP reads the file again.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A host name clients use for this server, or .example.com for all below; repeatable.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="An origin whose web pages may use this server: https://chat.example.com; repeatable.",
        ),
    ] = None,
    ctx: Annotated[
        int | None,
        typer.Option(
            min=256, help="Context tokens per slot. Default: what the model and memory allow, at most 32768."
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Requests decoded together. Default: 4, fewer on a small machine."),
    ] = None,
    cache_ram: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="MIB",
            help="Host memory for saved prompt states, in MiB; 0 = off. "
            "Default: a quarter of what stays free, at most 8192.",
        ),
    ] = None,
    threads: Threads = None,
    gpu_layers: GpuLayers = "auto",
    cache_type_k: CacheTypeK = CacheType.F16,
    cache_type_v: CacheTypeV = CacheType.F16,
    flash_attn: Annotated[FlashAttention, typer.Option(help="Flash attention.")] = FlashAttention.AUTO,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Cached and batched answers equal cold and lone ones to the bit. Slower, until "
            "`mashbox certify` has found what can be done together.",
        ),
    ] = False,
    rope_scaling: RopeScaling = "auto",
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A Jinja chat template in place of the model's own.")
    ] = None,
    tool_format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=_check_tool_format,
            help=f"How the model writes tool calls: {', '.join(FORMAT_NAMES)}. Default: as in its template.",
        ),
    ] = None,
    alias: Annotated[str | None, typer.Option(help="The model id that clients use.")] = None,
    model_sampling: Annotated[
        bool,
        typer.Option(
            "--model-sampling", help="Use the sampling its makers recommend as defaults, not greedy ones."
        ),
    ] = False,
    keep_alive: Annotated[
        int,
        typer.Option(
            min=1, max=3600, metavar="SECONDS", help="How long a stream may be silent before a sign of life."
        ),
    ] = int(DEFAULT_LIMITS.keep_alive_s),
    log_level: Annotated[
        LogLevel,
        typer.Option(
            metavar="LEVEL",
            help="How much to log: error, warning, info (a line per request), debug, or trace (llama.cpp's "
            "own lines, too).",
        ),
    ] = LogLevel.INFO,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")] = False,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Log prompts and answers. Without it no log holds any.")
    ] = False,
) -> None:
    """Serve one model on the OpenAI and Anthropic APIs."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server takes it: it never ends one
    log_config = LogConfig(log_level.value, log_json, log_prompts)
    _start_log(log_config)
    keys = _open_keys(host, api_key_file)
    allowed = allow(host, allow_host or (), allow_origin or (), keyed=keys.ring is not None)
    if exact:
        _check_exact(flash_attn, cache_type_v)
    template = _read_template(chat_template)
    listener = machine.bind(host, port)
    resolved = resolve(model, reporter_for(Console(stderr=True)))
    model_id = _checked_id(alias or resolved.model_id)
    header = read_model(resolved.paths)
    settings = MemorySettings(
        cache_type_k.value,
        cache_type_v.value,
        cache_ram or 0,
        ubatch=PREFILL_ROWS,
        flash_attn=flash_attn != FlashAttention.OFF,
        exact=exact,
    )
    ctx, slots, free = _fit(header, settings, ctx, slots)
    if cache_ram is None:
        cache_ram = default_cache_ram(estimate(header, ctx, slots, settings), free)
    loaded = ModelConfig(
        path=str(resolved.paths[0]),
        context=ctx,
        slots=slots,
        threads=threads or machine.physical_cores(),
        gpu_layers=layer_count(gpu_layers),
        cache_type_k=cache_type_k.value,
        cache_type_v=cache_type_v.value,
        flash_attn=flash_attn.value,
        rope_scaling=rope_scaling,
        cache_ram_mib=cache_ram,
    )
    deployment = server.Deployment(
        serve=ServeConfig(
            model_id=model_id,
            weights=resolved.paths[0].name,
            context=ctx,
            slots=slots,
            cache_ram_mib=cache_ram,
            default_sampling=_sampling(model_sampling, resolved, header),
        ),
        worker=WorkerConfig(model=_in_exact_mode(loaded, resolved) if exact else loaded, log=log_config),
        paths=resolved.paths,
        chat_template=template,
        tool_format=tool_format,
        stream_limits=StreamLimits(keep_alive_s=keep_alive),
        keys=keys,
        allowed=allowed,
    )
    bound = listener.getsockname()[1]
    machine.listen(listener)
    print(f"Loading {resolved.paths[0].name} ...", flush=True)

    def tell(facts: ModelFacts) -> None:
        keyed = keys.ring is not None
        print(welcome(model_id, facts.slots, facts.context, host, bound, keyed=keyed), flush=True)

    uvloop.run(server.run(deployment, listener, tell))


def _start_log(config: LogConfig) -> None:
    if config.prompts and config.level in (LogLevel.WARNING.value, LogLevel.ERROR.value):
        raise ConfigError(
            f"--log-prompts logs at level info, and --log-level {config.level} leaves that out."
        )
    logs.start(config)
    if config.prompts:
        log.warning("prompts and answers are written to this log (--log-prompts)")


def _open_keys(host: str, file: Path | None) -> Keys:
    """The server's keys; their variable is taken out of the environment, so that no child process has it.

    Raises ConfigError for keys that cannot be read, and for a server that others can reach without any.
    """
    keys = Keys(file, os.environb.pop(API_KEY_VARIABLE.encode(), b""))
    if keys.ring is None and not machine.is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached from other machines and needs an API key: "
            f"set {API_KEY_VARIABLE}, or give --api-key-file."
        )
    return keys


def _check_exact(flash_attn: FlashAttention, cache_type_v: CacheType) -> None:
    if flash_attn is FlashAttention.ON:
        raise ConfigError("--exact works without flash attention only: leave out --flash-attn on.")
    if cache_type_v not in (CacheType.F32, CacheType.F16, CacheType.BF16):
        raise ConfigError(
            f"--exact works without flash attention only, and values cached as {cache_type_v.value} need it: "
            "use f32, f16 or bf16 for --cache-type-v."
        )


def _in_exact_mode(model: ModelConfig, resolved: ResolvedModel) -> ModelConfig:
    exact, certified = exact_model(model, resolved.paths)
    if not certified:
        print(
            "Exact mode without a certificate: one answer at a time gets its next token. "
            "`mashbox certify` finds out whether more can be done together.",
            flush=True,
        )
    return exact


def _read_template(path: Path | None) -> str | None:
    """The text of --chat-template; one that does not compile is told before the model is loaded."""
    if path is None:
        return None
    source = load_template_file(path)
    check_template(FormatSource(source))
    return source


def _fit(
    header: GgufModel, settings: MemorySettings, context: int | None, slots: int | None
) -> tuple[int, int, int]:
    """Context and slots, as asked for or as memory allows, and the free bytes. Raises ModelTooBigError."""
    free = available_memory()
    slots = slots or default_slots(header, free, settings)
    context = context or default_context(header, free, slots, settings)
    check_fits(estimate(header, context, slots, settings), free, context=context, slots=slots)
    return context, slots, free


def _checked_id(model_id: str) -> str:
    """A model id that JSON can carry: bytes that are not UTF-8 come in as lone surrogates."""
    if not model_id.isprintable():
        raise ConfigError(f"The model id {model_id!r} cannot be shown; set another --alias.")
    return model_id


def _sampling(wanted: bool, resolved: ResolvedModel, header: GgufModel) -> Sampling:
    if not wanted:
        return Sampling()
    found = recommended_sampling(resolved, header)
    if found is None:
        raise ConfigError("--model-sampling: neither the catalog nor the model file recommends a sampling.")
    return found


@app.command("certify")
@plain_errors
def certify_command(
    model: ModelName,
    ctx: Annotated[
        int | None,
        typer.Option(
            min=LEAST_CONTEXT, help="Context tokens per slot. Default: 2048, or what the model was made for."
        ),
    ] = None,
    threads: Threads = None,
    gpu_layers: GpuLayers = "auto",
    cache_type_k: CacheTypeK = CacheType.F16,
    cache_type_v: CacheTypeV = CacheType.F16,
    rope_scaling: RopeScaling = "auto",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer and shorter prompts, in half the time; gives no certificate."),
    ] = False,
) -> None:
    """Check on this machine that --exact is exact, and find out how fast it may be.

    Reads about 50,000 tokens and writes 1,500: some minutes for a small model, an hour or more for a large
    one on a CPU. The result counts for this build, these weights and these settings, and for servers with a
    longer context if --ctx is 2048 or more. The exit code is 0 when all passed, 1 when something did not.
    """
    _check_exact(FlashAttention.AUTO, cache_type_v)
    resolved = resolve(model, reporter_for(Console(stderr=True)))
    header = read_model(resolved.paths)
    ctx = ctx or max(LEAST_CONTEXT, min(FULL_CONTEXT, header.context_length or FULL_CONTEXT))
    settings = MemorySettings(cache_type_k.value, cache_type_v.value, ubatch=PREFILL_ROWS, exact=True)
    free = available_memory()
    check_fits(estimate(header, ctx, GATE_SLOTS, settings), free, context=ctx, slots=GATE_SLOTS)
    config = ModelConfig(
        path=str(resolved.paths[0]),
        context=ctx,
        slots=GATE_SLOTS,
        threads=threads or machine.physical_cores(),
        gpu_layers=layer_count(gpu_layers),
        cache_type_k=cache_type_k.value,
        cache_type_v=cache_type_v.value,
        rope_scaling=rope_scaling,
    )
    with ProgressView(Console(stderr=True)) as view:
        certificate, path = certify(config, resolved.paths, quick, view.show)
    show_certificate(Console(), certificate, path)
    if not certificate.passed:
        raise typer.Exit(1)


@app.command("pull")
@plain_errors
def pull_command(model: ModelName) -> None:
    """Download a model without serving it."""
    for path in pull(model, reporter_for(Console(stderr=True))).paths:
        print(path)


@app.command("list")
@plain_errors
def list_command() -> None:
    """List the models mashbox knows by name."""
    table = Table("name", "size", "here", "description", box=None, pad_edge=False)
    for row in list_models():
        size = f"{row.size / 1e9:.1f} GB" if row.size else "?"
        table.add_row(row.id, size, "yes" if row.downloaded else "", row.description)
    Console().print(table)


if __name__ == "__main__":
    app()

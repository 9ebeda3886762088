"""What the health and model routes answer."""

from __future__ import annotations

from typing import get_args

from mashbox.api.health import HealthReport, Kernel, RoutedExperts
from mashbox.api.models import ModelCard
from mashbox.api.openapi.schema import Schema, Table, array, const, note, obj, ref
from mashbox.engine.certificate import Standing

STATUS_NAMES: dict[type, str] = {HealthReport: "Health", ModelCard: "Model"}
STATUS_TABLE: Table = {
    HealthReport: {
        "status": note(
            "`ok` when requests are taken; `loading` before, and while the worker starts again.",
            enum=["ok", "loading"],
        ),
        "live_rows": note("Requests that are being answered."),
        "waiting": note("Requests that wait for a slot."),
        "cache_bytes": note(
            "Host memory of the prompt cache: `host_cache_bytes` and `snapshot_bytes`, nothing twice."
        ),
        "host_cache_bytes": note("Bytes of saved prompt states, nothing twice."),
        "snapshot_bytes": note("Bytes of saved points in states that are not in `host_cache_bytes`."),
        "host_cache_cap_bytes": note(
            "Most bytes that the prompt cache may take of host memory; 0: it takes none."
        ),
        "host_cache_evictions": note("Saved states that had to go to stay under the cap."),
        "cache_namespace": note(
            "Id of all that a cached prompt depends on: model, weights, template, settings."
        ),
        "deployment_id": note(
            "Id of the build of the library that computes; null until the model is loaded."
        ),
        "component_set_sha": note("Id of the weights and the chat template; null until it is known."),
        "certification": note(
            "Whether a certificate says that this build is exact with these weights and settings.",
            enum=[*get_args(Standing)],
        ),
        "compiles_after_ready": note("Programs compiled since the server was ready; null before."),
        "routed_experts": note(
            "How a mixture-of-experts model's experts are computed; null for other models."
        ),
        "worker_restarts": note("Times the worker was started again."),
        "worker_pid": note("Process id of the worker; absent while there is none."),
    },
    RoutedExperts: {
        "path": note(
            "`kernel`: everywhere by the library's own kernel; `exact`: nowhere; `mixed`: here and there.",
            enum=["kernel", "exact", "mixed"],
        ),
        "kernel": note("Which kernel; null when it is not known."),
        "sites": note("How many places of the model take each path."),
        "exact_why": note("Why a place takes the exact path; null when none does."),
    },
    Kernel: {
        "id": note("Name of the kernel."),
        "version": note("Version of its package."),
        "package": note("The package it is in."),
    },
    ModelCard: {
        "id": note("Id of the model."),
        "object": note("Always `model`.", const="model"),
        "owned_by": note("Always `mashbox-labs`.", const="mashbox-labs"),
        "created": note("Always 0.", const=0),
        "max_model_len": note("Tokens of one context: prompt and answer together."),
        "weights": note("File of the weights."),
        "gb": note("Size of the weights in gigabytes (10^9 bytes); absent until the model is loaded."),
        "bpw": note("Bits for each weight; absent until the model is loaded."),
        "prefix_cache": note("Whether prompts that begin alike are computed once."),
        "slots": note("Requests that are answered at the same time."),
        "cache_ram_mib": note("Host memory for saved prompt states, in MiB."),
    },
}
"""Words for the types of these answers."""


def list_schema() -> Schema:
    """The list of models."""
    return obj(
        "The models of this server: one.",
        {"object": const("list"), "data": array(ref("Model"), "The model.", minItems=1, maxItems=1)},
    )

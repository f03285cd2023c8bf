"""Automations of a Prefect server for runs of deployments: failures are sent to a webhook, and no run stays open.

Their names begin with `gristmill: `, and they are replaced each time.
"""

from datetime import timedelta

from prefect.automations import Automation, AutomationCore
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events import EventTrigger, Posture, ResourceSpecification
from prefect.events.actions import CallWebhook, ChangeFlowRunState
from pydantic import SecretStr

PREFIX = "gristmill: "
TAG = "gristmill"
_BLOCK = "gristmill-failures"
_EVENT = "prefect.flow-run."
_ENDED = {f"{_EVENT}{state}" for state in ("Completed", "Failed", "Crashed", "Cancelled")}
# Prefect's own wait for a canceled process, before it kills it, is half a minute
CANCELLING = timedelta(minutes=3)
# three beats of PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30, as Prefect's documentation of dead runs has it
SILENCE = timedelta(seconds=90)
_MESSAGE = (
    '{"run": "{{ flow_run.name }}", "id": "{{ flow_run.id }}", "state": "{{ flow_run.state.name }}", '
    '"message": {{ flow_run.state.message | default("", true) | tojson }}}'
)


def write_automations(webhook: str = "") -> list[str]:
    """Write the automations to the server of PREFECT_API_URL, and return their names.

    `webhook`: when a run with the tag `gristmill` fails or crashes, a JSON object with run, id, state and message is
    posted to this address. It is stored in a secret block of the server. Without it no failures are sent.
    """
    wanted = [_cancelled(), _silent()]
    if webhook:
        block = Webhook(method="POST", url=SecretStr(webhook)).save(_BLOCK, overwrite=True)
        wanted.append(_failed(block))
    with get_client(sync_client=True) as client:
        existing = client.request("POST", "/automations/filter", json={}).json()
        for one in existing:
            if one["name"].startswith(PREFIX):
                client.request("DELETE", "/automations/{id}", path_params={"id": one["id"]})
    for automation in wanted:
        Automation.model_validate(automation.model_dump()).create()
    return [automation.name for automation in wanted]


def _of_our_runs() -> dict[str, ResourceSpecification]:
    return {
        "match": ResourceSpecification.model_validate({"prefect.resource.id": f"{_EVENT}*"}),
        "match_related": ResourceSpecification.model_validate(
            {"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"}
        ),
    }


def _failed(block: object) -> AutomationCore:
    trigger = EventTrigger(
        **_of_our_runs(), expect={f"{_EVENT}Failed", f"{_EVENT}Crashed"}, posture=Posture.Reactive, threshold=1
    )
    return AutomationCore(
        name=f"{PREFIX}notify the webhook of a failed run",
        trigger=trigger,
        actions=[CallWebhook(block_document_id=block, payload=_MESSAGE)],
    )


def _cancelled() -> AutomationCore:
    trigger = EventTrigger(
        **_of_our_runs(),
        after={f"{_EVENT}Cancelling"},
        expect=_ENDED,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=CANCELLING,
    )
    return AutomationCore(
        name=f"{PREFIX}end a canceled run",
        description="The worker ends a canceled run. If the worker has also ended, this ends the record.",
        trigger=trigger,
        actions=[ChangeFlowRunState(state=StateType.CANCELLED, message="no worker was running to end it")],
    )


def _silent() -> AutomationCore:
    trigger = EventTrigger(
        **_of_our_runs(),
        after={f"{_EVENT}heartbeat"},
        expect={f"{_EVENT}heartbeat", *_ENDED},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=SILENCE,
    )
    return AutomationCore(
        name=f"{PREFIX}end a run that has died",
        description="Requires PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30 on the worker, so that runs send heartbeats.",
        trigger=trigger,
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message="no heartbeat from its process")],
    )

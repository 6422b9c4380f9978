"""Rules of the API for Jobs, their status and CronJobs.

Source: pkg/apis/batch/validation and pkg/registry/batch, Kubernetes 1.36.
"""

import copy
from typing import Any

import pytest

from tests.unit.api.test_device_rules import Client, Object

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRONS = "/apis/batch/v1/namespaces/default/cronjobs"
AT = "2026-09-21T14:13:20Z"


@pytest.fixture
def client() -> Client:
    return Client()


def template(**spec: Any) -> Object:
    container = {"name": "c", "image": "one"}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def job(**spec: Any) -> Object:
    return {"metadata": {"name": "j"}, "spec": {"template": template(), **spec}}


def indexed(**spec: Any) -> Object:
    return job(**{"completionMode": "Indexed", "completions": 5, "parallelism": 5, **spec})


def rule(action: str = "FailJob", **on: Any) -> Object:
    return {"action": action, **on}


def codes(*values: int, operator: str = "In", **more: Any) -> Object:
    return {"onExitCodes": {"operator": operator, "values": [*values], **more}}


def failing(*rules: Object, **spec: Any) -> Object:
    return job(podFailurePolicy={"rules": list(rules)}, **spec)


def succeeding(*rules: Object, **spec: Any) -> Object:
    return indexed(successPolicy={"rules": list(rules)}, **spec)


def details(client: Client, method: str, path: str, body: Object) -> set[tuple[str, str]]:
    """Fields and messages of the causes; empty where the write is carried out."""
    status, answer = client.send(method, path, body)
    if status in (200, 201):
        return set()
    assert 422 == status, answer
    return {(c["field"].removeprefix("spec."), c["message"]) for c in answer["details"]["causes"]}


RULE = "podFailurePolicy.rules[0]"
SUCCESS = "successPolicy.rules[0]"
CASES: list[tuple[Object, list[tuple[str, str]]]] = [
    (job(backoffLimitPerIndex=1), [("backoffLimitPerIndex", "Invalid value: 1: requires indexed "
                                    "completion mode")]),
    (indexed(maxFailedIndexes=1), [("backoffLimitPerIndex", "Required value: when maxFailedIndexes "
                                    "is specified")]),
    (indexed(maxFailedIndexes=6, backoffLimitPerIndex=-1), [
        ("maxFailedIndexes", "Invalid value: 6: must be less than or equal to completions"),
        ("backoffLimitPerIndex", "Invalid value: -1: must be greater than or equal to 0")]),
    (indexed(parallelism=100_001), [
        ("parallelism", "Invalid value: 100001: must be less than or equal to 100000 when "
         "completion mode is Indexed")]),
    (job(completionMode="Indexed", parallelism=1), [
        ("completions", "Required value: when completion mode is Indexed")]),
    (indexed(completions=100_001, backoffLimitPerIndex=1), [
        ("maxFailedIndexes", "Required value: must be specified when completions is above "
         "100000")]),
    (job(completionMode="Sorted"), [("completionMode", 'Unsupported value: "Sorted": supported '
                                     'values: "NonIndexed", "Indexed"')]),
    (job(managedBy="me"), [("managedBy", 'Invalid value: "me": must be a domain-prefixed path '
     '(such as "acme.io/foo")')]),
    (job(managedBy="a.b/" + "c" * 60), [("managedBy", "Too long: may not be more than 63 bytes")]),
    (job(podReplacementPolicy="Never"), [
        ("podReplacementPolicy", 'Unsupported value: "Never": supported values: "Failed", '
         '"TerminatingOrFailed"')]),
    (failing(rule(**codes(1)), podReplacementPolicy="TerminatingOrFailed"), [
        ("podReplacementPolicy", 'Unsupported value: "TerminatingOrFailed": supported values: '
         '"Failed"')]),
    (failing(rule("Stop", **codes(1))), [
        (f"{RULE}.action", 'Unsupported value: "Stop": supported values: "Count", "FailIndex", '
         '"FailJob", "Ignore"')]),
    (failing(rule("FailIndex", **codes(1))), [
        (f"{RULE}.action", 'Invalid value: "FailIndex": requires the backoffLimitPerIndex to be '
         'set')]),
    (failing(rule()), [(RULE, "Invalid value: specifying one of OnExitCodes and OnPodConditions is "
                        "required")]),
    (failing(rule(**codes(1), onPodConditions=[{"type": "A"}])), [
        (RULE, "Invalid value: specifying both OnExitCodes and OnPodConditions is not supported")]),
    (failing(rule(**codes(2, 1, 1, 0))), [
        (f"{RULE}.onExitCodes.values[2]", "Duplicate value: 1"),
        (f"{RULE}.onExitCodes.values[3]", "Invalid value: 0: must not be 0 for the In operator"),
        (f"{RULE}.onExitCodes.values", "Invalid value: [2,1,1,0]: must be ordered")]),
    (failing(rule(**codes(1, containerName="x"))), [
        (f"{RULE}.onExitCodes.containerName", 'Invalid value: "x": must be one of the container or '
         'initContainer names in the pod template')]),
    (failing(rule(**codes(*range(1, 257), operator="NotIn"))), [
        (f"{RULE}.onExitCodes.values", "Too many: 256: must have at most 255 items")]),
    (failing(rule(onPodConditions=[{"type": "A", "status": "Yes"}])), [
        (f"{RULE}.onPodConditions[0].status",
         'Unsupported value: "Yes": supported values: "False", '
         '"True", "Unknown"')]),
    (failing(*[rule(**codes(1))] * 21), [
        ("podFailurePolicy.rules", "Too many: 21: must have at most 20 items")]),
    (failing(rule(**codes(1)), template=template(restartPolicy="OnFailure")), [
        ("template.spec.restartPolicy", 'Invalid value: "OnFailure": only "Never" is supported '
         'when podFailurePolicy is specified')]),
    (job(template=template(restartPolicy="Always")), [
        ("template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')]),
    (job(successPolicy={"rules": [{"succeededCount": 1}]}), [
        ("successPolicy", 'Invalid value: '
         '{"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: '
         'requires indexed completion mode')]),
    (succeeding(), [("successPolicy.rules", "Required value: at least one rules must be specified "
                     "when the successPolicy is specified")]),
    (succeeding({}), [(SUCCESS, "Required value: at least one of succeededCount or "
     "succeededIndexes "
                       "must be specified")]),
    (succeeding({"succeededCount": 6}), [
        (f"{SUCCESS}.succeededCount",
         "Invalid value: 6: must be less than or equal to 5 (the number "
         "of specified completions)")]),
    (succeeding({"succeededIndexes": "0-1", "succeededCount": 3}), [
        (f"{SUCCESS}.succeededCount",
         "Invalid value: 3: must be less than or equal to 2 (the number "
         "of indexes in the specified succeededIndexes field)")]),
    *((succeeding({"succeededIndexes": text}), [
        (f"{SUCCESS}.succeededIndexes", f'Invalid value: "{text}": error parsing succeededIndexes: '
         f'{why}')]) for text, why in (
            ("5", 'too large index: "5"'),
            ("1-x", 'cannot convert string to integer for index: "x"'),
            ("3,1", "non-increasing order, previous: 3, current: 1"),
            ("2-2", "non-increasing order, previous: 2, current: 2"),
            ("1-2-3", 'the fragment "1-2-3" violates the requirement that an index interval can '
             "have at most two parts separated by '-'"))),
]  # fmt: skip


@pytest.mark.parametrize(("body", "wanted"), CASES)
def test_a_job_that_breaks_rules(
    client: Client, body: Object, wanted: list[tuple[str, str]]
) -> None:
    assert set(wanted) == details(client, "POST", JOBS, body)


@pytest.mark.parametrize(
    "body",
    [
        failing(
            rule("Ignore", onPodConditions=[{"type": "DisruptionTarget"}]), rule(**codes(1, 9))
        ),
        indexed(backoffLimitPerIndex=0, maxFailedIndexes=5),
        succeeding({"succeededIndexes": "0,2-4", "succeededCount": 4}, {"succeededCount": 0}),
        job(managedBy="example.com/x", podReplacementPolicy="Failed"),
    ],
)
def test_a_job_that_keeps_rules(client: Client, body: Object) -> None:
    assert set() == details(client, "POST", JOBS, body)


def test_conditions_of_a_policy_are_true_by_default(client: Client) -> None:
    _, made = client.send("POST", JOBS, failing(rule(onPodConditions=[{"type": "A"}])))
    spec = made["spec"]
    pattern = spec["podFailurePolicy"]["rules"][0]["onPodConditions"]
    assert ([{"type": "A", "status": "True"}], "Failed") == (pattern, spec["podReplacementPolicy"])


def test_the_name_of_an_indexed_job_is_a_host_name(client: Client) -> None:
    body = indexed()
    body["metadata"]["name"] = "a.b"
    text = 'Invalid value: "a.b": will not able to create pod with invalid DNS label: a.b-4'
    assert {("metadata.name", text)} == details(client, "POST", JOBS, body)


def test_labels_of_the_template_lead_to_its_job(client: Client) -> None:
    """A template may not have another Job's; with a manual selector, it needs what that takes."""
    body = job()
    body["spec"]["template"]["metadata"] = {"labels": {"job-name": "other"}}
    assert ("spec.template.metadata.labels[job-name]", "Invalid") in client.faults(
        "POST", JOBS, body
    )
    manual = {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}
    assert {("spec.template.metadata.labels", "Invalid")} == client.faults(
        "POST", JOBS, job(**manual)
    )
    assert {("spec.selector", "Required"), ("spec.template.metadata.labels", "Invalid")} == (
        client.faults("POST", JOBS, job(manualSelector=True))
    )
    body = job(**manual)
    body["spec"]["template"]["metadata"] = {"labels": {"a": "b"}}
    assert set() == client.faults("POST", JOBS, body)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"backoffLimitPerIndex": 2}, "spec.backoffLimitPerIndex"),
        ({"managedBy": "example.com/y"}, "spec.managedBy"),
        ({"completions": 4}, "spec.completions"),
        ({"successPolicy": None}, "spec.successPolicy"),
        (
            {"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "Failed"},
            "spec.podFailurePolicy",
        ),
        ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, "spec.template"),
        ({"completions": 4, "parallelism": 4}, None),
        ({"suspend": True, "backoffLimit": 3, "activeDeadlineSeconds": 9}, None),
    ],
)
def test_what_of_a_job_may_change(client: Client, change: Object, field: str | None) -> None:
    body = succeeding({"succeededCount": 1}, backoffLimitPerIndex=1, managedBy="example.com/x")
    assert set() == client.faults("POST", JOBS, body)
    found = client.faults("PATCH", f"{JOBS}/j", {"spec": change})
    assert (set() if field is None else {(field, "Invalid")}) == found


def test_completions_of_a_job_without_indexes_stay(client: Client) -> None:
    client.send("POST", JOBS, job(completions=2))
    wanted = {("completions", "Invalid value: 3: field is immutable")}
    found = details(client, "PATCH", f"{JOBS}/j", {"spec": {"completions": 3, "parallelism": 3}})
    assert wanted == found


def test_a_suspended_job_without_pods_may_run_elsewhere_and_with_more(client: Client) -> None:
    """Its directives for the scheduler and its resources change; its image does not. A Job that has
    begun must say that it rests."""
    client.send("POST", JOBS, job(suspend=True))
    resources = {"requests": {"cpu": "2"}}
    own = template(
        nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}],
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    )  # fmt: skip
    own["spec"]["containers"][0]["resources"] = resources
    assert set() == client.faults("PATCH", f"{JOBS}/j", {"spec": {"template": own}})
    status: Object = {"startTime": AT, "active": 1}
    client.send("PATCH", f"{JOBS}/j/status", {"status": status})
    other = {"spec": {"template": {"spec": {"nodeSelector": {"a": "c"}}}}}
    assert {("spec.template", "Invalid")} == client.faults("PATCH", f"{JOBS}/j", other)
    why = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    rests = {"status": {"active": 0, "conditions": [why]}}
    assert 200 == client.send("PATCH", f"{JOBS}/j/status", rests)[0]
    assert set() == client.faults("PATCH", f"{JOBS}/j", other)
    image = copy.deepcopy(own)
    image["spec"]["containers"][0]["image"] = "two"
    assert {("spec.template.spec", "Invalid")} == client.faults(
        "PATCH", f"{JOBS}/j", {"spec": {"template": image}}
    )


# Status


def conditions(*types: str) -> list[Object]:
    return [{"type": type, "status": "True", "reason": "R", "lastTransitionTime": AT}
            for type in types]  # fmt: skip


COMPLETE = {"startTime": AT, "completionTime": AT,
            "conditions": conditions("SuccessCriteriaMet", "Complete")}  # fmt: skip
FAILED = {"startTime": AT, "conditions": conditions("FailureTarget", "Failed")}


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (COMPLETE, None),
        (FAILED, None),
        ({"active": 2, "ready": 3}, "cannot set more ready pods than active"),
        ({"conditions": conditions("Failed"), "startTime": AT}, "cannot set Failed=True condition "
         "without the FailureTarget=true condition"),
        ({**COMPLETE, "conditions": conditions("Complete")}, "cannot set Complete=True condition "
         "without the SuccessCriteriaMet=true condition"),
        ({**COMPLETE, "completionTime": None}, "completionTime is required for Complete jobs"),
        ({"startTime": AT, "completionTime": AT}, "cannot set completionTime when there is no "
         "Complete=True condition"),
        ({**FAILED, "active": 1}, "active>0 is invalid for finished job"),
        ({**FAILED, "terminating": 1}, "terminating>0 is invalid for finished job"),
        ({**FAILED, "startTime": None}, "startTime is required for finished job"),
        ({**FAILED, "uncountedTerminatedPods": {"failed": ["u"]}}, "must be empty for finished "
         "job"),
        ({**COMPLETE, "completionTime": "2026-09-21T14:13:19Z"}, "must be equal to or after "
         "`startTime`"),
        ({"completedIndexes": "0"}, "cannot set non-empty completedIndexes when non-indexed "
         "completion mode"),
        ({"failedIndexes": "1"}, "cannot set non-null failedIndexes when backoffLimitPerIndex is "
         "null"),
        ({"uncountedTerminatedPods": {"failed": ["u"], "succeeded": [""]}}, "must not be empty"),
        ({"conditions": conditions("SuccessCriteriaMet", "FailureTarget")}, "cannot set "
         "SuccessCriteriaMet=True and FailureTarget=true conditions"),
        ({"active": -1}, "must be greater than or equal to 0"),
    ],
)  # fmt: skip
def test_a_status_is_coherent(client: Client, status: Object, detail: str | None) -> None:
    client.send("POST", JOBS, job())
    found = details(client, "PATCH", f"{JOBS}/j/status", {"status": status})
    assert ([] if detail is None else [detail]) == [text.split(": ", 2)[-1] for _, text in found]


@pytest.mark.parametrize(
    ("before", "after", "detail"),
    [
        (FAILED, {"conditions": conditions("FailureTarget")}, "cannot disable the terminal "
         "Failed=True condition"),
        ({"failed": 2}, {"failed": 1}, "cannot decrease the failed counter"),
        ({"succeeded": 2}, {"succeeded": 1}, "cannot decrease the succeeded counter"),
        ({"startTime": AT}, {"startTime": None}, "field is immutable for unsuspended job once set"),
        (COMPLETE, {"completionTime": "2026-09-21T15:00:00Z"}, "field is immutable"),
        ({"conditions": conditions("SuccessCriteriaMet")}, {"conditions": []}, "cannot disable the "
         "SuccessCriteriaMet=True condition"),
    ],
)  # fmt: skip
def test_what_a_status_told_stays(
    client: Client, before: Object, after: Object, detail: str
) -> None:
    client.send("POST", JOBS, job())
    assert set() == details(client, "PATCH", f"{JOBS}/j/status", {"status": before})
    found = details(client, "PATCH", f"{JOBS}/j/status", {"status": after})
    assert [detail] == [text.split(": ", 2)[-1] for _, text in found]


def test_indexes_that_have_failed_have_not_succeeded(client: Client) -> None:
    client.send("POST", JOBS, indexed(backoffLimitPerIndex=1))
    told = {"completedIndexes": "0-2", "failedIndexes": "2-3"}
    found = details(client, "PATCH", f"{JOBS}/j/status", {"status": told})
    text = 'Invalid value: "2-3": failedIndexes and completedIndexes overlap at index: 2'
    assert {("status.failedIndexes", text)} == found
    told = {"completedIndexes": "0,2,1"}
    found = details(client, "PATCH", f"{JOBS}/j/status", {"status": told})
    text = ('Invalid value: "0,2,1": error parsing completedIndexes: non-increasing order, '
     'previous: '
            "2, current: 1")  # fmt: skip
    assert {("status.completedIndexes", text)} == found


# CronJobs


def cron(**spec: Any) -> Object:
    own = {"spec": {"template": template()}}
    return {"metadata": {"name": "c"},
            "spec": {"schedule": "* * * * *", "jobTemplate": own, **spec}}  # fmt: skip


TZ = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"schedule": ""}, "schedule", "Required value"),
        ({"schedule": "* * * * 7"}, "schedule",
         'Invalid value: "* * * * 7": end of range (7) above maximum (6): 7'),
        ({"schedule": "TZ=UTC * * * * *"}, "schedule", f'Invalid value: "TZ=UTC * * * * *": {TZ}'),
        ({"timeZone": ""}, "timeZone",
         'Invalid value: "": timeZone must be nil or non-empty string'),
        ({"timeZone": "bad-time-zone"}, "timeZone",
         'Invalid value: "bad-time-zone": unknown time zone bad-time-zone'),
        ({"timeZone": "../etc"}, "timeZone", 'Invalid value: "../etc": unknown time zone ../etc'),
        ({"timeZone": "Local"}, "timeZone", 'Invalid value: "Local": timeZone must be an explicit '
         "time zone as defined in https://www.iana.org/time-zones"),
        ({"concurrencyPolicy": "Queue"}, "concurrencyPolicy",
         'Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"'),
        ({"jobTemplate": {"spec": {"template": template(), "manualSelector": True}}},
         "jobTemplate.spec.manualSelector",
         'Unsupported value: true: supported values: "nil", "false"'),
        ({"jobTemplate": {"spec": {"template": template(), "managedBy": "x"}}},
         "jobTemplate.spec.managedBy",
         'Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")'),
        ({"timeZone": "Europe/Berlin"}, None, None),
    ],
)  # fmt: skip
def test_rules_of_cron_jobs(
    client: Client, spec: Object, field: str | None, message: str | None
) -> None:
    wanted = set() if field is None else {(field, message)}
    assert wanted == details(client, "POST", CRONS, cron(**spec))


def test_the_name_of_a_cron_job_leaves_room_for_a_time(client: Client) -> None:
    body = cron()
    body["metadata"]["name"] = "c" * 53
    text = f'Invalid value: "{"c" * 53}": must be no more than 52 characters'
    assert {("metadata.name", text)} == details(client, "POST", CRONS, body)

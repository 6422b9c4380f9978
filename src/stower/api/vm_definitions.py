"""Defines VirtualMachine and VirtualMachineMigration of vm.neon.tech as CustomResourceDefinitions.

Our API server serves them by itself (native_kinds.py), with the rules of neon's webhooks in
Python; for clusters that have neither neon's definitions nor its webhooks, tools/make_crds.py
writes them to deploy/vms/crds. Fields with types of Kubernetes (affinity, tolerations, resources,
volumes) are stored unchanged: the API server validates them on the pod.

Source: neondatabase/autoscaling neonvm/apis/neonvm/v1.
"""

from typing import Any, Final

from stower.api.definition_parts import (
    AGE,
    CONDITION,
    INT32_MAX,
    Object,
    definition,
    list_of,
    struct,
)

GROUP: Final = "vm.neon.tech"
PORT_MAX: Final = 65_535
SLOTS_MAX: Final = 512
KEPT: Final[Object] = {"x-kubernetes-preserve-unknown-fields": True}
AMOUNT: Final[Object] = {
    **KEPT,
    "description": "A quantity: a number, or a string such as 250m or 1Gi.",
}
FLAG: Final[Object] = {"type": "boolean"}


def _open_object(description: str) -> Object:
    return {"type": "object", "description": description, **KEPT}


def _number(description: str = "", **more: Any) -> Object:
    made = {"type": "integer", "format": "int32", **more}
    return {**made, "description": description} if description else made


def _flag(default: bool) -> Object:
    return {**FLAG, "default": default}


def _column(name: str, path: str, wide: bool = False) -> Object:
    made: Object = {"name": name, "type": "string", "jsonPath": path}
    return {**made, "priority": 1} if wide else made


def _port(default: int) -> Object:
    return _number(minimum=1, maximum=PORT_MAX, default=default)


_TEXTS: Final[Object] = {"type": "object", "additionalProperties": {"type": "string"}}
_BOUNDS: Final = ("min", "max", "use")
_SLOTS: Final = struct(
    "The memory slots of the VM: minimum, maximum and the number in use.",
    {name: _number(minimum=1, maximum=SLOTS_MAX) for name in _BOUNDS},
    required=[*_BOUNDS],
)
_CPUS: Final = struct(
    "The CPUs of the VM: minimum, maximum and the number in use.",
    dict.fromkeys(_BOUNDS, AMOUNT),
    required=[*_BOUNDS],
)
_GUEST: Final = struct(
    "The system in the VM, and the size of the VM.",
    {
        "kernelImage": {"type": "string"},
        "memhpAutoMovableRatio": {"type": "string"},
        "appendKernelCmdline": {"type": "string"},
        "cpus": _CPUS,
        "memorySlotSize": {**AMOUNT, "default": "1Gi"},
        "memorySlots": _SLOTS,
        "rootDisk": struct(
            "The disk from which the VM boots.",
            {
                "image": {"type": "string"},
                "size": AMOUNT,
                "imagePullPolicy": {"type": "string", "default": "IfNotPresent"},
                "execute": {"type": "array", "items": {"type": "string"}},
            },
            required=["image"],
        ),
        "command": {"type": "array", "items": {"type": "string"}},
        "args": {"type": "array", "items": {"type": "string"}},
        "env": list_of(
            "Environment variables.",
            struct(
                "An environment variable.",
                {"name": {"type": "string"}, "value": {"type": "string", "default": ""}},
                required=["name"],
            ),
        ),
        "ports": list_of(
            "Ports that the VM serves.",
            struct(
                "A port.",
                {
                    "name": {"type": "string"},
                    "port": {"type": "integer", "minimum": 1, "maximum": PORT_MAX},
                    "protocol": {"type": "string", "default": "TCP"},
                },
                required=["port"],
            ),
        ),
        "settings": struct(
            "Settings of the system in the VM.",
            {"sysctl": {"type": "array", "items": {"type": "string"}}, "swap": AMOUNT},
        ),
    },
)
_DISK: Final = struct(
    "A disk of the VM.",
    {
        "name": {"type": "string"},
        "readOnly": _flag(False),
        "mountPath": {"type": "string"},
        "watch": _flag(False),
        "emptyDisk": _open_object("An empty disk that exists as long as the VM."),
        "configMap": _open_object("The data of a ConfigMap."),
        "secret": _open_object("The data of a Secret."),
        "tmpfs": _open_object("A file system in memory."),
    },
    required=["name", "mountPath"],
)
_REVISION: Final = struct(
    "The revision of the spec, as set by the client that counts revisions.",
    {
        "revision": struct(
            "The number of the revision, and flags.",
            {
                "value": {"type": "integer", "format": "int64"},
                "flags": {"type": "integer", "format": "int64"},
            },
            required=["value", "flags"],
        ),
        "updatedAt": {"type": "string", "format": "date-time"},
    },
    required=["revision", "updatedAt"],
)
_SPEC: Final = struct(
    "The desired state of the VM.",
    {
        "qmp": _port(20_183),
        "qmpManual": _port(20_184),
        "runnerPort": _port(25_183),
        "terminationGracePeriodSeconds": {"type": "integer", "format": "int64", "default": 5},
        "nodeSelector": _TEXTS,
        "affinity": _open_object("The affinity of the runner pod, as in a pod."),
        "tolerations": list_of(
            "The tolerations of the runner pod, as in a pod.", _open_object("A toleration.")
        ),
        "schedulerName": {"type": "string"},
        "serviceAccountName": {"type": "string"},
        "podResources": _open_object("The resources of the runner container, as in a container."),
        "restartPolicy": {
            "type": "string",
            "default": "Always",
            "enum": ["Always", "OnFailure", "Never"],
        },
        "imagePullSecrets": list_of(
            "The image pull secrets of the runner pod, as in a pod.", _open_object("A secret.")
        ),
        "targetArchitecture": {"type": "string", "enum": ["amd64", "arm64"]},
        "guest": _GUEST,
        "extraInitContainers": list_of(
            "More init containers of the runner pod, as in a pod.",
            _open_object("An init container."),
        ),
        "initScript": {"type": "string"},
        "disks": list_of("Additional disks.", _DISK),
        "extraNetwork": struct(
            "A second network.",
            {
                "enable": _flag(False),
                "interface": {"type": "string", "default": "net1"},
                "multusNetwork": {"type": "string"},
            },
        ),
        "service_links": FLAG,
        "enableAcceleration": _flag(True),
        "runnerImage": {"type": "string"},
        "enableSSH": _flag(True),
        "tls": struct(
            "Certificates for the VM.",
            {
                "certificateIssuer": {"type": "string"},
                "expireAfter": {"type": "string"},
                "renewBefore": {"type": "string"},
                "serverName": {"type": "string"},
                "mountPath": {"type": "string", "default": "/var/tls"},
            },
        ),
        "overcommit": struct(
            "The divisor of the resources in use: with 2, the scheduler counts half of them.",
            {"cpu": AMOUNT, "memory": AMOUNT},
        ),
        "targetRevision": _REVISION,
        "cpuScalingMode": {"type": "string", "enum": ["QmpScaling", "SysfsScaling"]},
        "enableNetworkMonitoring": _flag(False),
    },
    required=["guest"],
)
_CONDITIONS: Final = list_of("The conditions of the object.", CONDITION)
_STATUS: Final = struct(
    "The observed state of the VM.",
    {
        "conditions": _CONDITIONS,
        "phase": {"type": "string"},
        "restartCount": _number(maximum=INT32_MAX),
        "podName": {"type": "string"},
        "podIP": {"type": "string"},
        "extraNetIP": {"type": "string"},
        "extraNetMask": {"type": "string"},
        "node": {"type": "string"},
        "cpus": AMOUNT,
        "memorySize": AMOUNT,
        "sshSecretName": {"type": "string"},
        "tlsSecretName": {"type": "string"},
        "currentRevision": _REVISION,
    },
)
VIRTUAL_MACHINE: Final = definition(
    "VirtualMachine",
    "virtualmachines",
    "Namespaced",
    struct(
        "VirtualMachine is a VM that runs in a pod and changes its size while it runs.",
        {"spec": _SPEC, "status": _STATUS},
        required=["spec"],
    ),
    [
        _column("Cpus", ".status.cpus"),
        _column("Memory", ".status.memorySize"),
        _column("Pod", ".status.podName"),
        _column("ExtraIP", ".status.extraNetIP"),
        _column("Status", ".status.phase"),
        _column("Restarts", ".status.restartCount"),
        AGE,
        _column("Node", ".status.node", wide=True),
        _column("Image", ".spec.guest.rootDisk.image", wide=True),
        _column("CPUScalingMode", ".spec.cpuScalingMode", wide=True),
        _column("TargetArchitecture", ".spec.targetArchitecture", wide=True),
    ],
    GROUP,
    "neonvm",
    status={},
)
_COUNT: Final[Object] = {"type": "integer", "format": "int64"}
VIRTUAL_MACHINE_MIGRATION: Final = definition(
    "VirtualMachineMigration",
    "virtualmachinemigrations",
    "Namespaced",
    struct(
        "VirtualMachineMigration moves a VM to another node while it runs.",
        {
            "spec": struct(
                "The VM to migrate, and the options of the migration.",
                {
                    "vmName": {"type": "string", "minLength": 1},
                    "nodeSelector": _TEXTS,
                    "nodeAffinity": _open_object(
                        "The node affinity of the target pod, as in a pod."
                    ),
                    "preventMigrationToSameHost": _flag(True),
                    "completionTimeout": _number(default=3600),
                    "incremental": _flag(True),
                    "allowPostCopy": _flag(False),
                    "autoConverge": _flag(True),
                    "maxBandwidth": {**AMOUNT, "default": "1Gi"},
                },
                required=["vmName"],
            ),
            "status": struct(
                "The observed state of the migration.",
                {
                    "conditions": _CONDITIONS,
                    "phase": {"type": "string"},
                    **{
                        f"{end}{what}": {"type": "string"}
                        for end in ("source", "target")
                        for what in ("PodName", "PodIP", "Node")
                    },
                    "info": struct(
                        "The progress that the hypervisor reports.",
                        {
                            "status": {"type": "string"},
                            "totalTimeMs": _COUNT,
                            "setupTimeMs": _COUNT,
                            "downtimeMs": _COUNT,
                            "ram": struct(
                                "The transfer of memory, in bytes.",
                                dict.fromkeys(("transferred", "remaining", "total"), _COUNT),
                            ),
                            "compression": struct(
                                "The compression of the transfer.",
                                dict.fromkeys(("compressedSize", "compressionRate"), _COUNT),
                            ),
                        },
                    ),
                },
            ),
        },
        required=["spec"],
    ),
    [
        _column("VM", ".spec.vmName"),
        _column("Source", ".status.sourcePodName"),
        _column("SourceIP", ".status.sourcePodIP", wide=True),
        _column("Target", ".status.targetPodName"),
        _column("TargetIP", ".status.targetPodIP", wide=True),
        _column("Status", ".status.phase"),
        AGE,
    ],
    GROUP,
    "neonvmm",
    status={},
)

VM_DEFINITIONS: Final = (VIRTUAL_MACHINE, VIRTUAL_MACHINE_MIGRATION)

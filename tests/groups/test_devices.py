"""Groups whose pods have devices: what is known of devices as amounts."""

from stower.assembly import build_engine
from tests.builders import make_node
from tests.device_builders import Agreeing, device, device_class, device_slice
from tests.group_builders import RACK, make_group, members


def test_that_devices_for_an_extended_resource_run_out_is_proved_at_once() -> None:
    """On one node the resource is there without devices."""
    plain = make_node("c0", labels={RACK: "c"}, example__com_gpu="1")
    api = Agreeing(
        build_engine(),
        *(make_node(f"{rack}0", labels={RACK: rack}) for rack in "ab"),
        plain,
        *(device_slice(f"{rack}0", device("d")) for rack in "ab"),
        device_class(extendedResourceName="example.com/gpu"),
        make_group("g", 2, key=RACK),
        *members("g", 2, requests={"example.com/gpu": "1"}),
    )
    assert {} == api.bound
    needs = "PodGroup default/g needs 2 pods in one rack, 1 fit"
    assert f"{needs}: Insufficient devices of gpu.example.com" in api.messages["g-0"]
    api.put(device_slice("b0", device("d"), device("e")))
    api.wait(10)
    assert {"b0"} == set(api.bound.values())

"""launch/kubernetes: the fields exist, and are what JAX's detection needs.

The schemas are ours, after the documented fields; no cluster has seen the manifests.
"""

import importlib
import json
import math
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from jax._src.clusters import k8s_cluster

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "launch" / "kubernetes"
SCHEMAS = json.loads((HERE / "schemas" / "manifests.json").read_text())


def documents(name):
    return {d["kind"]: d for d in yaml.safe_load_all((FOLDER / name).read_text())}


def uncommented(text):
    """As after taking the # from what is offered as a comment of one field a line."""
    pattern = r"^( *)# ( *(?:- )?[\w./-]+:(?: [\w./\"@-]+)?)$"
    return re.sub(pattern, r"\1\2", text, flags=re.MULTILINE)


def job_of(jobset):
    (replicated,) = jobset["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1  # JAX counts the pods of one job
    return replicated["template"]["spec"]


@pytest.mark.parametrize("name", ["gpu.yaml", "tpu.yaml", "serve.yaml", "parts.yaml"])
def test_every_field_is_one_of_the_api_also_those_offered_in_comments(name):
    text = (FOLDER / name).read_text()
    plain, offered = (
        [*yaml.safe_load_all(variant)] for variant in (text, uncommented(text))
    )
    assert plain != offered
    for document in plain + offered:
        schema = {"$ref": f"#/$defs/{document['kind']}", "$defs": SCHEMAS["$defs"]}
        jsonschema.Draft202012Validator(schema).validate(document)


@pytest.mark.parametrize("name", ["gpu.yaml", "tpu.yaml"])
def test_all_pods_are_one_indexed_job_that_fails_and_restarts_as_a_whole(name):
    jobset = documents(name)["JobSet"]
    job = job_of(jobset)
    assert job["completionMode"] == "Indexed"
    assert job["parallelism"] == job["completions"] > 1
    assert job["backoffLimit"] == 0
    policy = jobset["spec"]["failurePolicy"]
    assert policy["maxRestarts"] >= 10
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] >= 120
    # JAX finds them by these names.
    network = jobset["spec"]["network"]
    assert network["enableDNSHostnames"]
    assert network["publishNotReadyAddresses"]
    assert "subdomain" not in network  # JAX takes the name of the JobSet for it
    # Exit status 2 is for a person: the job fails for a reason that ends the JobSet.
    (rule,) = job["podFailurePolicy"]["rules"]
    (container,) = pod["containers"]
    codes = {"containerName": container["name"], "operator": "In", "values": [2]}
    assert rule == {"action": "FailJob", "onExitCodes": codes}
    (rule,) = policy["rules"]
    assert rule["action"] == "FailJobSet"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]


def test_the_account_of_the_gpu_pods_may_ask_what_jax_asks():
    manifests = documents("gpu.yaml")
    granted = {
        (group, resource, verb)
        for rule in manifests["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    source = Path(k8s_cluster.__file__).read_text()
    asks = {
        "list_namespaced_pod": ("", "pods", "list"),
        "read_namespaced_job": ("batch", "jobs", "get"),
        "list_namespaced_service": None,  # only where there is no JobSet
    }
    assert set(re.findall(r"_api\.(\w+)\(", source)) == set(asks)
    assert granted == set(filter(None, asks.values()))
    account = manifests["ServiceAccount"]["metadata"]["name"]
    binding = manifests["RoleBinding"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert binding["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    pod = job_of(manifests["JobSet"])["template"]["spec"]
    assert pod["serviceAccountName"] == account
    (port,) = pod["containers"][0]["ports"]
    assert str(port["containerPort"]) == k8s_cluster.K8sCluster._coordinator_port


def test_the_hosts_of_the_slice_are_as_many_as_its_topology_has():
    job = job_of(documents("tpu.yaml")["JobSet"])
    pod = job["template"]["spec"]
    topology = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    chips = pod["containers"][0]["resources"]["limits"]["google.com/tpu"]
    assert math.prod(map(int, topology.split("x"))) == job["parallelism"] * chips
    clusters = importlib.import_module("jax._src.clusters.cloud_tpu_cluster")
    (port,) = pod["containers"][0]["ports"]
    assert str(port["containerPort"]) == clusters.coordinator_port


def test_the_server_is_probed_stopped_and_scaled_as_it_works():
    manifests = documents("serve.yaml")
    deployment, service = manifests["Deployment"]["spec"], manifests["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == service["selector"] == labels
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    # Readiness waits for the programs; a server that compiles is alive.
    paths = {
        kind: container[kind]["httpGet"]["path"]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths.pop("readinessProbe") == "/ready"
    assert {*paths.values()} == {"/health"}
    # What is accepted is answered within --max_seconds, 20 by default.
    wait = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > wait + 20
    (port,) = container["ports"]
    assert service["ports"][0]["targetPort"] == port["name"]
    scaled = manifests["ScaledObject"]["spec"]
    assert (
        scaled["scaleTargetRef"]["name"] == manifests["Deployment"]["metadata"]["name"]
    )
    trigger = scaled["triggers"][0]["metadata"]
    url = f"http://{manifests['Service']['metadata']['name']}.NAMESPACE:5000/metrics"
    assert (trigger["url"], port["containerPort"]) == (url, 5000)
    # Compared with targetValue times the pods, so the sum over them.
    assert trigger["aggregationType"] == "sum"
    # Of all that is mounted only these are written.
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    written = {m["mountPath"] for m in container["volumeMounts"] if "readOnly" not in m}
    assert mounts - written == {"/workdir"}
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_images_run_python_itself_so_that_sigterm_reaches_it_the_server_as_nobody():
    text = (FOLDER / "Dockerfile").read_text()
    assert '\nENTRYPOINT ["python", "-m", "t2t_jax.main"]' in text
    assert re.search(r"pip install .* kubernetes$", text, re.MULTILINE)
    text = (FOLDER.parent / "serve.Dockerfile").read_text()
    assert '\nENTRYPOINT ["python", "-m", "t2t_jax", "serve"' in text
    assert "USER 10001" in text
    pod = documents("serve.yaml")["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001


def test_skypilot_runs_the_main_job_on_each_machine():
    """Its own parser has seen the file; here, what SkyPilot cannot know."""
    task = yaml.safe_load((FOLDER.parent / "sky.yaml").read_text())
    assert task["envs"]["WORKDIR"] is None  # SkyPilot then asks for it
    for name in ("NODE_IPS", "NUM_NODES", "NODE_RANK"):
        assert f'"$SKYPILOT_{name}"' in task["run"]
    flags = {*re.findall(r"--(\w+)=", task["run"])}
    process = {"coordinator_address", "num_processes", "process_id"}
    assert flags == {"config", "workdir", *process}
    assert task["resources"]["use_spot"]

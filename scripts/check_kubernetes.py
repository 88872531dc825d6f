#!/usr/bin/env python3
"""Checks docs/operate/kubernetes: its YAML against the operators' schemas, and the MPIJob's command line on pretended pods.

  scripts/check_kubernetes.py schema [CRD.yaml ...]   default: fetched from GitHub, mpi-operator's and Trainer's master
  scripts/check_kubernetes.py pods [BUILD]            default: build

`schema` needs the packages pyyaml and jsonschema. `pods` needs pyyaml, root, ip, overlayfs, Open MPI's mpirun and sshd. Each pod is
a set of namespaces of this machine: network, processes, mounts, host name. They are one launcher and three workers, of which one is
spare. Their sshd is configured by the lines of the Dockerfile, and their commands are those of mpijob.yaml. One worker is killed:
supervise must leave it out, take the spare one, and end with the bits of an undisturbed run. The suite does not need this script.
"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/operate/kubernetes"
MASTER = "https://raw.githubusercontent.com/kubeflow/"
CRDS = [MASTER + "mpi-operator/master/manifests/base/kubeflow.org_mpijobs.yaml",
        MASTER + "trainer/master/manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
        MASTER + "trainer/master/manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"]


def say(line):
    print("check_kubernetes: " + line, flush=True)


def fail(line):
    say(line)
    sys.exit(1)


def closed(schema):
    """The schema, with an error for fields that it does not know."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            closed(value)
    elif isinstance(schema, list):
        for value in schema:
            closed(value)
    return schema


def read_crd(source):
    if "://" in source:
        text = urllib.request.urlopen(source, timeout=60).read()
    else:
        text = pathlib.Path(source).read_bytes()
    crd = yaml.safe_load(text)["spec"]
    for version in crd["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        schema["properties"]["metadata"] = {"type": "object"}
        yield (crd["group"] + "/" + version["name"], crd["names"]["kind"]), closed(schema)


def objects():
    return [(page.name, each) for page in sorted(PAGES.glob("*.yaml")) for each in yaml.safe_load_all(page.read_text())]


def check_schema(sources):
    import jsonschema
    schemas = {kind: schema for source in sources for kind, schema in read_crd(source)}
    problems = 0
    for name, each in objects():
        kind = (each["apiVersion"], each["kind"])
        if kind not in schemas:
            fail(f"{name}: no schema of {kind[1]} of {kind[0]}")
        for error in jsonschema.Draft7Validator(schemas[kind]).iter_errors(each):
            problems += 1
            say(f"{name}: {each['kind']}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}")
        # A checker that accepts everything would accept this, too.
        planted = yaml.safe_load(yaml.safe_dump(each))
        planted["spec"]["noSuchField"] = 1
        if not list(jsonschema.Draft7Validator(schemas[kind]).iter_errors(planted)):
            fail(f"the schema of {kind[1]} finds no unknown field")
        say(f"{name}: {each['kind']} of {each['apiVersion']}: {'valid' if not problems else 'not valid'}")
    if problems:
        sys.exit(1)


def check_spare(job):
    """One worker more than the ranks of the command need."""
    replicas, words = job["spec"]["mpiReplicaSpecs"], launcher_words(job)
    ranks = int(words[words.index("-n") + 1])
    slots = job["spec"]["slotsPerWorker"]
    if ranks != slots * (replicas["Worker"]["replicas"] - 1):
        fail(f"mpijob.yaml: {ranks} ranks leave no worker of {replicas['Worker']['replicas']} with {slots} slots spare")


def container(job, role):
    return job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"][0]


def launcher_words(job):
    return container(job, "Launcher")["command"] + container(job, "Launcher")["args"]


class Pods:
    """Namespaces that pretend to be pods on one network. Its files are in `place`, and /work in each pod is place/work."""

    def __init__(self, place, program):
        self.place, self.program, self.names, self.running = place, program, [], {}
        self.tag = f"tr{os.getpid()}"
        self.ip("netns", "add", self.tag)
        self.ip("-n", self.tag, "link", "add", "pods", "type", "bridge")
        self.ip("-n", self.tag, "link", "set", "pods", "up")

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def add(self, name):
        self.names.append(name)
        number, space = len(self.names), f"{self.tag}-{len(self.names)}"
        self.ip("netns", "add", space)
        self.ip("-n", self.tag, "link", "add", f"p{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
        self.ip("-n", self.tag, "link", "set", f"p{number}", "master", "pods", "up")
        self.ip("-n", space, "address", "add", f"10.98.0.{number}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self.ip("-n", space, "link", "set", device, "up")

    def hosts(self):
        return "127.0.0.1 localhost\n" + "".join(
            f"10.98.0.{i + 1} {name}.trireme.default.svc {name}\n" for i, name in enumerate(self.names))

    def start(self, name, words, environment):
        """Runs a container's command as user 1000, with the image's files."""
        own = self.place / name
        script = f"""
set -e
for layer in etc usr/local/bin home; do
  mkdir -p {own}/up/$layer {own}/work/$layer
  mount -t overlay overlay -o lowerdir=/$layer,upperdir={own}/up/$layer,workdir={own}/work/$layer /$layer
done
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run; mkdir /run/sshd
install -m 755 {self.program} /usr/local/bin/trireme
mount --bind {self.place}/pod_work /work; mount -t proc proc /proc
hostname {name}; cp {self.place}/hosts /etc/hosts; mkdir -p /etc/mpi /home/mpiuser; cp {self.place}/hostfile /etc/mpi/
sed -i '/:x:1000:/d' /etc/passwd; echo 'mpiuser:x:1000:1000::/home/mpiuser:/bin/bash' >> /etc/passwd; echo 'mpiuser:x:1000:' >> /etc/group
{dockerfile_lines()}
cp -r {self.place}/keys /home/mpiuser/.ssh; chmod 700 /home/mpiuser/.ssh; chmod 600 /home/mpiuser/.ssh/*
chown -R 1000:1000 /home/mpiuser
mount -t tmpfs tmpfs /tmp; cd /work
exec setpriv --reuid 1000 --regid 1000 --clear-groups env -i HOME=/home/mpiuser USER=mpiuser PATH=/usr/local/bin:/usr/bin:/bin \\
  {' '.join(shlex.quote(f'{key}={value}') for key, value in environment.items())} {shlex.join(words)}
"""
        space = f"{self.tag}-{self.names.index(name) + 1}"
        log = open(self.place / f"{name}.log", "ab")
        self.running[name] = subprocess.Popen(
            ["ip", "netns", "exec", space, "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "bash", "-c",
             script], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self.running[name]

    def kill(self, name):
        """Kills the first process of the pod, and with it all others."""
        process = self.running[name]
        for first in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(first), signal.SIGKILL)
        process.wait()

    def close(self):
        for name, process in self.running.items():
            if process.poll() is None:
                self.kill(name)
        for number in range(len(self.names)):
            self.ip("netns", "delete", f"{self.tag}-{number + 1}")
        self.ip("netns", "delete", self.tag)


def dockerfile_lines():
    """The printf commands of the Dockerfile, which write its configuration of SSH."""
    text = (PAGES / "Dockerfile").read_text().replace("\\\n", " ")
    found = re.findall(r"printf '%s\\n' [^>]*> \S+", text)
    if len(found) != 2:
        fail(f"the Dockerfile has {len(found)} printf commands instead of 2")
    return "\n".join(found)


def prepare(place, program):
    (place / "pod_work").mkdir()
    work = place / "pod_work"
    text = (ROOT / "docs/checkpoints.md").read_text()
    (work / "held.txt").write_text(text)
    (work / "train.txt").write_text(text * 3)
    (work / "config.yaml").write_text("""
kernels: {dtype: f32, threads: 1}
model: {family: llama, layers: 1, width: 32, heads: 2, vocab: 257, context: 64}
data: {train: [shards/train-00000.h5], validation: [shards/validation-00000.h5], tokenizer: bytes}
train: {name: pods, steps: 3000, batch: 4, microbatch: 1, warmup: 5, eval_every: 0, hang_after: 120}
checkpoint: {every: 100}
""")
    quiet = {"cwd": work, "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([program, "data", "build", "train.txt", "--validation-input", "held.txt", "--output", "shards", "--tokenizer",
                    "bytes"], **quiet)
    allowed = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run(["mpirun", "--oversubscribe", "-n", "2", program, "train", "config.yaml", "--set", "train.name=whole"],
                   env=allowed, **quiet)
    (place / "keys").mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", place / "keys/id_rsa"], check=True)
    shutil.copy(place / "keys/id_rsa.pub", place / "keys/authorized_keys")
    subprocess.run(["chown", "-R", "1000:1000", work], check=True)
    place.chmod(0o755)


def steps_done(metrics):
    return metrics.read_text().count("\n") if metrics.exists() else 0


def run_pods(job, place, program):
    prepare(place, program)
    workers = [f"trireme-worker-{i}" for i in range(3)]
    pods = Pods(place, program)
    try:
        for name in ["trireme-launcher", *workers]:
            pods.add(name)
        (place / "hosts").write_text(pods.hosts())
        (place / "hostfile").write_text("".join(f"{name}.trireme.default.svc slots=1\n" for name in workers))
        worker = container(job, "Worker")
        for name in workers:
            pods.start(name, worker["command"] + worker["args"], {})
        time.sleep(2)  # launcherCreationPolicy: WaitForWorkersReady
        words = ["2" if word == "24" else word for word in launcher_words(job)]
        launcher = pods.start("trireme-launcher", words, {  # as the operator sets them
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": "1",
            "OMPI_MCA_btl_tcp_if_include": "10.98.0.0/24", "OMPI_MCA_oob_tcp_if_include": "10.98.0.0/24"})
        metrics, begin, killed = place / "pod_work/runs/pods/metrics.jsonl", time.monotonic(), False
        while launcher.poll() is None and time.monotonic() < begin + 400:
            if not killed and steps_done(metrics) >= 300:
                pods.kill("trireme-worker-1")
                killed = True
            time.sleep(0.02)
        log = (place / "trireme-launcher.log").read_text()
        lines = [line for line in log.splitlines() if line.startswith("supervise:")]
        print("\n".join(lines))
        wanted = "supervise: leaves out trireme-worker-1.trireme.default.svc, and takes trireme-worker-2.trireme.default.svc instead"
        if launcher.poll() != 0 or not killed or not any(line.startswith(wanted) for line in lines):
            fail(f"the launcher ended with {launcher.poll()}:\n{log[-3000:]}")
    finally:
        pods.close()
    different = subprocess.run([program, "checkpoint", "diff", place / "pod_work/runs/whole", place / "pod_work/runs/pods"])
    if different.returncode != 0:
        fail("the run on pods has other bits than an undisturbed one")
    say("two pods trained, one was killed, a spare one took its place: the same bits as undisturbed")


def check_pods(build):
    job = next(each for _, each in objects() if each["kind"] == "MPIJob")
    check_spare(job)
    needed = [tool for tool in ("ip", "unshare", "setpriv", "mpirun", "ssh-keygen", "ssh", "/usr/sbin/sshd") if not shutil.which(tool)]
    if needed or os.geteuid() != 0:
        fail("needs root, and " + ", ".join(needed or ["nothing else"]))
    with tempfile.TemporaryDirectory(prefix="trireme-pods-") as place:
        run_pods(job, pathlib.Path(place), build.resolve() / "trireme")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("schema", "pods"):
        sys.exit(__doc__)
    if sys.argv[1] == "schema":
        check_schema(sys.argv[2:] or CRDS)
    else:
        check_pods(pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "build"))

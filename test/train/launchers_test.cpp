// The examples in scripts/: mpirun with a hostfile, and Slurm where it is installed.
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

const std::string kScripts = TRIREME_SOURCE "/scripts/";
const std::string kTrireme = "TRIREME=" TRIREME_BUILD "/trireme";

// A script in the workplace, as a user starts it: with this environment, ended after two minutes.
Ended run_script(const Workplace& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"--kill-after=30", "120", "env", "ASAN_OPTIONS=detect_leaks=0"});
  return Process(place.scratch.path(), words, 1, "timeout").wait();
}

// An srun that trains to its end, and the example of a job: asked to stop after its first step, left to queue again and to finish.
const char* const kJobs = R"(
srun -n 2 --mpi=pmix "$TRIREME" train config.yaml --set train.microbatch=1 --set train.name=srun || exit
job=$(sbatch --parsable --ntasks=2 "$1" config.yaml --set train.microbatch=1 --set train.steps=800 --set train.eval_every=0 \
  --set checkpoint.every=0 --set train.name=job) || exit
until [ -s runs/job/metrics.jsonl ]; do sleep 0.02; done
scancel --signal=USR1 "$job"
until scontrol show job "$job" | grep -E 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'; do sleep 0.1; done
scontrol show job "$job" | grep -o 'Restarts=[0-9]*'
cat trireme-"$job".log
)";

}  // namespace

TEST_CASE("the example for mpirun trains on the ranks of a hostfile") {
  const Workplace place;
  succeed(place.train({"train.name=plain", "train.microbatch=1"}, 2));
  write_text(place.scratch / "hosts", "localhost slots=2\n");
  succeed(run_script(place, {kTrireme, "HOSTFILE=hosts", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                             kScripts + "launch_mpirun.sh", "config.yaml", "--set", "train.microbatch=1"}));
  CHECK(place.metrics("tiny") == place.metrics("plain"));
  CHECK(place.differ("tiny", "plain") == 0);
}

TEST_CASE("Slurm, where it is installed, trains to the same bits as mpirun, and a stopped job queues again and finishes",
          "[unsanitized]") {
  const Workplace place;
  const std::string slurm = kScripts + "local_slurm.sh";
  if (const Ended check = run_script(place, {slurm, "--check"}); check.code != 0) {
    WARN("skipped: " << check.err);
    return;
  }
  const Ended ended = run_script(place, {kTrireme, slurm, "run", "bash", "-c", kJobs, "bash", kScripts + "launch_slurm.sbatch"});
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  for (const char* told : {"JobState=COMPLETED", "Restarts=1", "stopped by signal (User defined signal 1)",
                           "Exited with exit code 75", "resumed after step ", "finished 800 steps"})
    CHECK_THAT(ended.out, ContainsSubstring(told));

  succeed(place.train({"train.name=mpirun", "train.microbatch=1"}, 2));
  CHECK(place.metrics("srun") == place.metrics("mpirun"));
  CHECK(place.differ("srun", "mpirun") == 0);
  succeed(
      place.train({"train.name=whole", "train.microbatch=1", "train.steps=800", "train.eval_every=0", "checkpoint.every=0"}, 2));
  CHECK(place.metrics("job") == place.metrics("whole"));
  CHECK(place.differ("job", "whole") == 0);
}

}  // namespace trireme

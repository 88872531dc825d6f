// The examples in scripts/: mpirun with a hostfile, and Slurm where it is installed.
#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

const std::string kScripts = TRIREME_SOURCE "/scripts/";
const std::string kTrireme = "TRIREME=" TRIREME_BUILD "/trireme";

// A script in the workplace, as a user starts it: with this environment, ended after some seconds.
Ended run_script(const Workplace& place, std::vector<std::string> words, int64_t seconds = 120) {
  words.insert(words.begin(), {"--kill-after=30", std::to_string(seconds), "env", "ASAN_OPTIONS=detect_leaks=0"});
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

// Steps of srun that are asked to stop, one after the other, at moments of their own and by each signal.
const char* const kPreemptions = R"sh(
for i in $(seq "$1"); do
  srun -n 4 --mpi=pmix --job-name="stop-$i" "$TRIREME" train config.yaml --set train.microbatch=1 --set parallel.tp=2 \
    --set train.steps=100000 --set train.eval_every=0 --set checkpoint.every=7 --set train.name="stop-$i" &
  until [ -s "runs/stop-$i/metrics.jsonl" ]; do kill -0 $! || exit; sleep 0.02; done
  sleep "0.$((100 + i * 37 % 300))"
  signals=(TERM USR1 USR2)
  scancel --signal="${signals[i % 3]}" "$(squeue --noheader --format=%i --name="stop-$i").0"
  wait $!
  echo "ended $i: $?"
done
)sh";

void check_steps_of_slurm(int64_t count) {
  const Workplace place;
  const std::string slurm = kScripts + "local_slurm.sh";
  if (const Ended check = run_script(place, {slurm, "--check"}); check.code != 0) {
    WARN("skipped: " << check.err);
    return;
  }
  const Ended ended =
      run_script(place, {kTrireme, slurm, "run", "bash", "-c", kPreemptions, "bash", std::to_string(count)}, 60 + 20 * count);
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  for (int64_t i = 1; i <= count; ++i) {
    INFO("step of srun " << i);
    const std::string name = "stop-" + std::to_string(i);
    REQUIRE_THAT(ended.out, ContainsSubstring("ended " + std::to_string(i) + ": 75\n"));
    const Json exit = Json::parse(place.run(name, "exit.json"));
    REQUIRE(exit.at("code") == 75);
    REQUIRE(exit.at("step") == place.metrics(name).back().at("step"));
    const Ended listed = run_trireme(place.scratch.path(), {"checkpoint", "list", "runs/" + name});
    REQUIRE_THAT(listed.out, ContainsSubstring("step " + std::to_string(exit.at("step").get<int64_t>()) + "  "));
  }
}

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

TEST_CASE("steps of srun that are asked to stop lose no step", "[unsanitized]") { check_steps_of_slurm(3); }

TEST_CASE("sixty steps of srun that are asked to stop lose no step", "[.][soak]") { check_steps_of_slurm(60); }

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
  for (const char* told : {"JobState=COMPLETED", "Restarts=1", "stopped by SIGUSR1", "Exited with exit code 75",
                           "resumed after step ", "finished 800 steps"})
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

// Hosts of a supervised run: read from hostfiles and allocations, left out when they fail, replaced by spare ones, and taken back.
#include "train/run/host_choice.h"

#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>

#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/run/launch_hosts.h"
#include "train/run/launcher_words.h"

namespace trireme {
namespace {

std::string slots_listed(const std::vector<LaunchHost>& hosts) {
  std::string list;
  for (const LaunchHost& host : hosts) list += (list.empty() ? "" : " ") + host.name + ":" + std::to_string(host.slots);
  return list;
}

LaunchedTraining launched(const std::string& line) {
  std::istringstream in(line);
  return take_apart({std::istream_iterator<std::string>(in), {}});
}

std::string line_of(const LaunchedTraining& training) {
  std::string line;
  for (const std::string& word : training.words) line += (line.empty() ? "" : " ") + word;
  return line;
}

Attempt failed(int code, const std::string& host, const std::string& cause = "machine", int64_t rank = 1) {
  Attempt attempt{.started = {}, .cause = cause, .host = host, .message = "it failed"};
  attempt.code = code, attempt.rank = rank;
  return attempt;
}

// A HostChoice over files in memory.
struct MadeUp {
  std::map<std::string, std::string> files;
  std::vector<std::string> said;
  SuperviseOptions options;
  LaunchedTraining asked;
  RunConfig config;
  SuperviseIo io;
  std::optional<HostChoice> choice;

  MadeUp(const std::string& hostfile, int64_t ranks, bool elastic = false) {
    options.exclude_bad = true, options.elastic = elastic;
    asked = launched("mpirun -n " + std::to_string(ranks) + " trireme train c.yaml");
    config.train.runs = "runs", config.train.name = "demo", config.train.batch = 8, config.train.microbatch = 1;
    files["hosts"] = hostfile;
    io.hosts = [this] { return LaunchHosts{.hosts = parse_hostfile(files["hosts"], "hosts"), .source = "hosts"}; };
    io.read = [this](const std::string& path) { return files[path]; };
    io.write = [this](const std::string& path, const std::string& text) { return files[path] = text, true; };
    io.say = [this](const std::string& line) { said.push_back(line); };
    io.utc = [] { return std::string("2026-02-03T04:05:06Z"); };
    choice.emplace(io, options, asked, config);
  }
  MadeUp(const MadeUp&) = delete;
  MadeUp& operator=(const MadeUp&) = delete;

  // Ranks and hosts of the next attempt.
  std::string next() {
    const int64_t ranks = choice->next().ranks;
    return std::to_string(ranks) + " on " + slots_listed(parse_hostfile(files["runs/demo/hostfile"], "hostfile"));
  }
  std::string excluded() { return files["runs/demo/excluded_hosts.txt"]; }
};

constexpr auto kThree = "n1 slots=4\nn2 slots=4\nn3 slots=4\n";

}  // namespace

TEST_CASE("a hostfile says how many ranks each host takes, and one that does not is refused with its line") {
  CHECK(slots_listed(parse_hostfile("# nodes\nn1 slots=4\n\n n2 max_slots=8 slots=2 # new\nroot@n3 slots=1\nn1 slots=4\n", "h")) ==
        "n1:8 n2:2 n3:1");
  CHECK_THROWS_WITH(parse_hostfile("n1 slots=4\nn2\n", "h"), ContainsSubstring("h:2: 'n2' has no slots: write 'n2 slots=4'"));
  CHECK_THROWS_WITH(parse_hostfile("n1 slots=four\n", "h"), ContainsSubstring("h:1: 'four' is not a number"));
  CHECK_THROWS_WITH(parse_hostfile("# none\n", "h"), ContainsSubstring("h names no host"));
}

TEST_CASE("nodes of a Slurm job are listed with the ranks that each takes") {
  CHECK(slots_listed(parse_allocation("n[08-10,2],login1", "4(x3),2,1")) == "n08:4 n09:4 n10:4 n2:2 login1:1");
  CHECK(slots_listed(parse_allocation("r[1-2]n[0-1]-ib", "8(x4)")) == "r1n0-ib:8 r1n1-ib:8 r2n0-ib:8 r2n1-ib:8");
  CHECK_THROWS_WITH(parse_allocation("n[1-3]", "4(x2)"), ContainsSubstring("--ntasks-per-node"));
  CHECK_THROWS_WITH(parse_allocation("n[1-x]", "4(x2)"), ContainsSubstring("'x' is not a number"));
}

TEST_CASE("a host is known by its name, the first part of its name, or its address") {
  const std::vector<LaunchHost> hosts = parse_hostfile("n1.cluster slots=1\nn2 slots=1\nn22 slots=1\n127.0.0.9 slots=1\n", "h");
  CHECK(find_host(hosts, "n1") == 0);
  CHECK(find_host(hosts, "n1.cluster") == 0);
  CHECK(find_host(hosts, "n2.cluster") == 1);
  CHECK(find_host(hosts, "n22") == 2);
  CHECK(find_host(hosts, "127.0.0.9") == 3);
  CHECK_FALSE(find_host(hosts, "n3.invalid"));
}

TEST_CASE("commands are given other hosts: mpirun by a hostfile, srun by what it leaves out and the number of nodes") {
  const LaunchHosts mpi{.hosts = parse_hostfile(kThree, "h"), .source = "h"};
  const std::vector<LaunchHost> used{mpi.hosts[0], mpi.hosts[2]};
  CHECK(hostfile_text(used) == "n1 slots=4\nn3 slots=4\n");
  const auto by_mpi = [&](const std::string& line) { return line_of(on_hosts(launched(line), mpi, used, {"n2"}, "new")); };
  CHECK(by_mpi("mpirun -n 8 trireme train c.yaml") == "mpirun --hostfile new -n 8 trireme train c.yaml");
  CHECK(by_mpi("mpirun --mca pml ob1 -hostfile old -n 8 trireme train c.yaml") ==
        "mpirun --mca pml ob1 -hostfile new -n 8 trireme train c.yaml");
  CHECK(by_mpi("mpirun --hostfile=old -n 8 trireme train c.yaml") == "mpirun --hostfile=new -n 8 trireme train c.yaml");

  LaunchHosts slurm = mpi;
  slurm.by_srun = true;
  const auto by_srun = [&](const std::string& line) { return line_of(on_hosts(launched(line), slurm, used, {"n2", "n7"}, "")); };
  CHECK(by_srun("srun -n 8 trireme train c.yaml") == "srun --exclude=n2,n7 --nodes=2 -n 8 trireme train c.yaml");
  CHECK(by_srun("srun --mpi=pmix -x n9 -N 3 -n 8 trireme train c.yaml") ==
        "srun --mpi=pmix -x n9,n2,n7 -N 2 -n 8 trireme train c.yaml");
  CHECK(by_srun("srun -n 8 numactl -N 0 trireme train c.yaml") ==
        "srun --exclude=n2,n7 --nodes=2 -n 8 numactl -N 0 trireme train c.yaml");
  const LaunchedTraining moved = on_hosts(launched("srun -n 8 trireme train c.yaml"), slurm, used, {"n2"}, "");
  CHECK(line_of(moved.with(4, "")) == "srun --exclude=n2 --nodes=2 -n 4 trireme train c.yaml");
}

TEST_CASE("a command that cannot be given other hosts is refused with the remedy") {
  const auto refusal = [](const std::string& line) { return find_hosts(launched(line), ""); };
  CHECK_THROWS_WITH(refusal("trireme train c.yaml"),
                    ContainsSubstring("'trireme' is neither mpirun nor srun") || ContainsSubstring("starts no training"));
  CHECK_THROWS_WITH(refusal("env trireme train c.yaml"), ContainsSubstring("'env' is neither mpirun nor srun"));
  CHECK_THROWS_WITH(refusal("mpirun trireme train c.yaml"), ContainsSubstring("add -n to mpirun"));
  CHECK_THROWS_WITH(refusal("mpirun -H n1:4,n2:4 -n 8 trireme train c.yaml"), ContainsSubstring("give them in a hostfile"));
  CHECK_THROWS_WITH(refusal("mpirun --hostfile /no/such/file -n 8 trireme train c.yaml"), ContainsSubstring("/no/such/file"));
}

TEST_CASE("a host is accused at once if the run names it or it is gone, otherwise when the same rank fails there twice") {
  const auto accused = [](const std::vector<Attempt>& attempts) {
    const Accused found = accused_host(attempts);
    return found.host + (found.sure ? "!" : "");
  };
  CHECK(accused({failed(76, "n2")}) == "n2!");
  CHECK(accused({failed(1, "n2", kNodeLost, -1)}) == "n2!");
  CHECK(accused({failed(137, "n2", "lost")}).empty());
  CHECK(accused({failed(137, "n2", "lost"), failed(137, "n2", "lost")}) == "n2");
  CHECK(accused({failed(137, "n2", "lost"), failed(137, "n2", "lost", 3)}).empty());
  CHECK(accused({failed(137, "n2", "lost"), failed(137, "n3", "lost")}).empty());
  CHECK(accused({failed(255, "n2", kUnreachable, -1), failed(255, "n2", kUnreachable, -1)}) == "n2");
  CHECK(accused({failed(71, "n2", "hang"), failed(71, "n2", "hang")}) == "n2");
  CHECK(accused({failed(71, "", "hang"), failed(71, "", "hang")}).empty());  // all ranks waited for one another
  Attempt saved = failed(137, "n2", "lost");
  saved.last_checkpoint = 9;
  CHECK(accused({failed(137, "n2", "lost"), saved}).empty());
}

TEST_CASE("only as many hosts as needed are used, and a spare one takes the place of a bad one") {
  MadeUp run(kThree, 8);
  CHECK(run.next() == "8 on n1:4 n2:4");
  run.choice->after({failed(76, "n2.cluster")}, false);
  CHECK(run.next() == "8 on n1:4 n3:4");
  CHECK(run.said ==
        std::vector<std::string>{"supervise: leaves out n2, and takes n3 instead; runs/demo/excluded_hosts.txt lists it"});
  CHECK_THAT(run.excluded(), ContainsSubstring("# Hosts that trireme supervise") &&
                                 ContainsSubstring("\nn2 2026-02-03T04:05:06Z attempt 1 ended with 76: it failed\n"));
}

TEST_CASE("without a spare host a bad one is used again, and a host that is not listed leaves none out") {
  MadeUp run(kThree, 12);
  run.choice->after({failed(76, "n2")}, false);
  run.choice->after({failed(76, "n9")}, false);
  CHECK(run.next() == "12 on n1:4 n2:4 n3:4");
  CHECK_THAT(run.excluded(), !ContainsSubstring("\nn"));
  REQUIRE(run.said.size() == 2);
  CHECK(run.said[0] == "supervise: n2 is used again: no host is spare for its 4 ranks, and --elastic is not given");
  CHECK(run.said[1] == "supervise: n9 is not in hosts: no host is left out");
}

TEST_CASE("without a spare host an elastic run continues on fewer ranks, and on all when the host comes back") {
  MadeUp run(kThree, 12, true);
  run.config.train.batch = 12;
  CHECK(run.next() == "12 on n1:4 n2:4 n3:4");
  run.choice->after({failed(76, "n2")}, false);
  CHECK(run.next() == "8 on n1:4 n3:4");
  CHECK(run.next() == "8 on n1:4 n3:4");
  run.files["runs/demo/excluded_hosts.txt"] = "# nobody\n";
  CHECK(run.next() == "12 on n1:4 n2:4 n3:4");
  CHECK(run.said ==
        std::vector<std::string>{"supervise: leaves out n2, and no host is spare; runs/demo/excluded_hosts.txt lists it",
                                 "supervise: continues with 8 ranks instead of 12",
                                 "supervise: n2 is not excluded any more, and may be used again",
                                 "supervise: continues with 12 ranks instead of 8"});
}

TEST_CASE("hosts that a person has excluded are not used, and too few hosts are an error with its remedies") {
  MadeUp run(kThree, 8);
  run.files["runs/demo/excluded_hosts.txt"] = "n1 has a noisy fan\n#n2\n";
  CHECK(run.next() == "8 on n2:4 n3:4");
  run.files["runs/demo/excluded_hosts.txt"] += "n3\n";
  CHECK_THROWS_WITH(run.next(), ContainsSubstring("takes 4 of 8 ranks: add a host, delete a line of that file, or add --elastic"));
}

TEST_CASE("failures that follow a rank to another host accuse no further host until there is a new checkpoint") {
  MadeUp run("n1 slots=1\nn2 slots=1\nn3 slots=1\nn4 slots=1\n", 2);
  const auto twice = [](const std::string& host) {
    return std::vector<Attempt>{failed(70, host, "error"), failed(70, host, "error")};
  };
  CHECK(run.next() == "2 on n1:1 n2:1");
  run.choice->after(twice("n2"), true);
  CHECK(run.next() == "2 on n1:1 n3:1");
  run.choice->after(twice("n3"), true);
  CHECK(run.next() == "2 on n1:1 n3:1");
  Attempt saved = failed(70, "n3", "error");
  saved.last_checkpoint = 5;
  run.choice->after({saved}, false);
  run.choice->after(twice("n3"), true);
  CHECK(run.next() == "2 on n1:1 n4:1");
}

namespace {

// A launcher that finds the host n2 bad whenever its hostfile has it, and otherwise is the real one on this machine.
std::vector<std::string> with_a_bad_host(const Workplace& place, const std::string& hostfile) {
  write_text(place.scratch / "hosts", hostfile);
  write_text(place.scratch / "mpirun",
             "#!/bin/sh\n"
             "echo $4 on $(cut -d' ' -f1 \"$2\") >> starts\n"
             "if grep -q '^n2 ' \"$2\"; then\n"
             "  echo '{\"code\": 76, \"cause\": \"machine\", \"rank\": 1, \"host\": \"n2\", \"message\": \"n2 is slow\"}' > next\n"
             "  mv next runs/tiny/exit.json; exit 137\n"
             "fi\n"
             "shift 2\nexec /usr/bin/env mpirun --oversubscribe \"$@\"\n");
  std::filesystem::permissions(place.scratch / "mpirun", std::filesystem::perms::owner_all);
  return {"supervise", "--exclude-bad", "--hostfile", "hosts"};
}

}  // namespace

TEST_CASE("a supervised run with a bad host ends on a spare one, and a later start remembers", "[unsanitized]") {
  const Workplace place;
  const std::string program = std::string(TRIREME_BUILD) + "/trireme";
  std::vector<std::string> words = with_a_bad_host(place, "n1 slots=1\nn2 slots=1\nn3 slots=1\n");
  for (const std::string& word : {std::string("--"), place.scratch / "mpirun", std::string("-n"), std::string("2"), program})
    words.push_back(word);
  for (const std::string& word : Workplace::arguments({"train.microbatch=1"})) words.push_back(word);
  const Ended ended = Process(place.scratch.path(), words, 1, program).wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("supervise: attempt 1 ended with 76: n2 is slow") &&
                            ContainsSubstring("supervise: leaves out n2, and takes n3 instead"));
  CHECK(Process(place.scratch.path(), words, 1, program).wait().code == 0);
  CHECK(read_text(place.scratch / "starts") == "2 on n1 n2\n2 on n1 n3\n2 on n1 n3\n");
  CHECK(place.metrics("tiny").back().at("step") == 20);
}

TEST_CASE("a supervised elastic run with a bad host and no spare one ends on fewer ranks", "[unsanitized]") {
  const Workplace place;
  const std::string program = std::string(TRIREME_BUILD) + "/trireme";
  std::vector<std::string> words = with_a_bad_host(place, "n1 slots=1\nn2 slots=1\n");
  for (const std::string& word :
       {std::string("--elastic"), std::string("--"), place.scratch / "mpirun", std::string("-n"), std::string("2"), program})
    words.push_back(word);
  for (const std::string& word : Workplace::arguments({"train.microbatch=1"})) words.push_back(word);
  const Ended ended = Process(place.scratch.path(), words, 1, program).wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("continues with 1 rank instead of 2"));
  CHECK(read_text(place.scratch / "starts") == "2 on n1 n2\n1 on n1\n");
}

}  // namespace trireme

// OutputRelay: passes on what a child writes to stderr, unchanged and in order, and keeps the end of it. If stdout is the same
// file, it is relayed along, so that the two stay in order. A child of a program on a terminal keeps one: a pseudo-terminal of its
// width.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace trireme {

class OutputRelay {
 public:
  OutputRelay();  // without pipes or pseudo-terminals, the child writes by itself and nothing is heard
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  void become_output() const;  // in the child, after fork(): async-signal-safe
  void begin();                // in the parent, after fork()
  // After the child has ended: waits up to two seconds for the end of its output, which its own children may hold open. Returns at
  // most the last 64 KiB. Whatever comes later is still passed on while this exists.
  std::string heard();

 private:
  void relay();
  bool open_terminal();
  void follow_width();

  bool with_stdout_ = false;
  int ours_ = -1, theirs_ = -1;  // ends of the pipe or pseudo-terminal
  bool terminal_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool ended_ = false, closing_ = false;
  std::string tail_;
  std::thread thread_;
};

}  // namespace trireme

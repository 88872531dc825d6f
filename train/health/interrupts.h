// Interrupts: a flag set by Ctrl-C, which the loop of an interactive command polls.
#pragma once

namespace trireme {

// While an object exists, SIGINT does not end the program. It interrupts a blocking read, which then
// fails with EINTR. At most one object may exist at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  bool pending() const;
  bool take();  // returns pending() and clears the flag
};

}  // namespace trireme

// Interrupts: Ctrl-C as a question that a loop asks, for commands that converse.
#pragma once

namespace trireme {

// While one lives, SIGINT no longer ends the program. It interrupts a read that waits, which then fails with EINTR. One at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  bool pending() const;
  bool take();  // pending(), and forgets it
};

}  // namespace trireme

// SignalStack: a stack for the signal handlers of this thread while the scope lasts, so that they can report a stack that
// overflowed. Keeps one that is there already.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace trireme {

class SignalStack {
 public:
  SignalStack() {
    const stack_t mine{.ss_sp = memory_.data(), .ss_flags = 0, .ss_size = memory_.size()};
    installed_ = sigaltstack(nullptr, &before_) == 0 && (before_.ss_flags & SS_DISABLE) != 0 && sigaltstack(&mine, nullptr) == 0;
  }
  ~SignalStack() {
    if (installed_) sigaltstack(&before_, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  alignas(16) std::array<std::byte, 64 << 10> memory_;
  stack_t before_{};
  bool installed_;
};

}  // namespace trireme

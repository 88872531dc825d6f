#include "train/health/stack.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

namespace trireme {
namespace {

const int kAsk = SIGRTMIN + 5;  // a signal that launchers do not send

// Results of the signal handler.
std::array<void*, 64> frames;
std::atomic<int> depth = -1, asked = 0;  // the thread whose answer is awaited: a late one is dropped

void answer(int) {
  if (gettid() != asked) return;
  const int error = errno;
  depth = backtrace(frames.data(), static_cast<int>(frames.size()));
  errno = error;
}

// Extracts the function: "/path/trireme(_ZN7trireme3runE+0x12) [0x5]" -> "trireme::run". A function
// without a name becomes its file and offset.
std::string name_in(const std::string& symbol) {
  const size_t open = symbol.find('('), plus = symbol.find('+', open), close = symbol.find(')', open);
  const std::string file = symbol.substr(0, open), short_file = file.substr(file.rfind('/') + 1);
  if (open == std::string::npos || close == std::string::npos) return symbol;
  if (plus == std::string::npos || plus == open + 1) return short_file + symbol.substr(open + 1, close - open - 1);
  const std::string mangled = symbol.substr(open + 1, plus - open - 1);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                         std::free);
  const std::string plain = status == 0 ? name.get() : mangled;
  return plain.substr(0, plain.find('('));
}

}  // namespace

void watch_stacks() {
  std::array<void*, 4> first;
  backtrace(first.data(), static_cast<int>(first.size()));  // the first call loads a library, which a handler must not
  struct sigaction action {};
  action.sa_handler = answer;
  action.sa_flags = SA_RESTART;
  sigaction(kAsk, &action, nullptr);
}

std::string stack_of(int thread) {
  depth = -1;
  asked = thread;
  if (syscall(SYS_tgkill, getpid(), thread, kAsk) != 0) return "";
  for (int wait = 0; depth < 0 && wait < 100; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const int count = depth;
  if (count <= 0) return "";
  const std::unique_ptr<char*, decltype(&std::free)> symbols(backtrace_symbols(frames.data(), count), std::free);
  if (!symbols) return "";
  std::string out;
  for (int i = 2; i < count; ++i) out += (i > 2 ? " < " : "") + name_in(symbols.get()[i]);  // skips the handler and its frame
  return out;
}

}  // namespace trireme

#include "base/process_state.h"

#include <string>

#include "base/file.h"
#include "base/text_stream.h"

namespace trireme {

ProcessState state_of_process(int32_t process) {
  const std::string stat = text_of_file("/proc/" + std::to_string(process) + "/stat", 4096);
  const size_t name_end = stat.rfind(") ");  // "PID (NAME) STATE PARENT ...", where the name may hold any characters
  if (name_end == std::string::npos) return {};
  TextReader in(stat.substr(name_end + 2));
  ProcessState state;
  in >> state.letter >> state.parent;
  return in.fail() ? ProcessState{} : state;
}

}  // namespace trireme

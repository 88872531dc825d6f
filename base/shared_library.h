// A shared library that is opened when it is first needed: NVIDIA's are hundreds of megabytes, which a run on the CPU neither needs
// to have nor pays for.
#pragma once

#include <string>

namespace trireme {

class SharedLibrary {
 public:
  // Never closed. Error "PURPOSE needs NAME: why not".
  SharedLibrary(std::string name, const std::string& purpose);
  template <class F>
  F* find(const char* function) const {
    return reinterpret_cast<F*>(address_of(function));
  }

 private:
  void* address_of(const char* function) const;  // Error without it
  std::string name_;
  void* handle_;
};

}  // namespace trireme

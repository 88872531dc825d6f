// A shared library that is opened on first use. NVIDIA's libraries are hundreds of megabytes, which
// a run on the CPU neither needs nor loads.
#pragma once

#include <string>

namespace trireme {

class SharedLibrary {
 public:
  // Opens the library; it is never closed. Throws Error "PURPOSE needs NAME: why not".
  SharedLibrary(std::string name, const std::string& purpose);
  template <class F>
  F* find(const char* function) const {
    return reinterpret_cast<F*>(address_of(function));
  }

 private:
  void* address_of(const char* function) const;  // throws Error if the library lacks it
  std::string name_;
  void* handle_;
};

}  // namespace trireme

#include "base/shared_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace trireme {

SharedLibrary::SharedLibrary(std::string name, const std::string& purpose)
    : name_(std::move(name)), handle_(dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw Error(purpose + " needs " + name_ + ": " + dlerror());
}

void* SharedLibrary::address_of(const char* function) const {
  void* found = dlsym(handle_, function);
  if (found == nullptr) throw Error(name_ + " has no " + function);
  return found;
}

}  // namespace trireme

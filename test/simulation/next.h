// Next: the C library's own function of a name that this program defines.
#pragma once

#include <dlfcn.h>

namespace trireme::simulation {

template <class Function>
struct Next {
  explicit Next(const char* name) : call(reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name))) {}
  Function* const call;
};

}  // namespace trireme::simulation

#include "kernels/amx.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace trireme {

bool may_use_amx() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of Linux 5.16 and later
  static const bool may = __builtin_cpu_supports("amx-bf16") != 0 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
}

}  // namespace trireme

#include "kernels/x86_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trireme {
namespace {

// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID. Compilers know some of these bits by name,
// others not.
enum class Register { eax, edx };

bool has_bit(unsigned part_of_leaf_7, Register which, int bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, part_of_leaf_7, &eax, &ebx, &ecx, &edx) == 0) return false;
  return ((which == Register::eax ? eax : edx) >> bit & 1) != 0;
}

}  // namespace

bool has_avx512_bf16_instructions() { return has_bit(1, Register::eax, 5); }

bool may_use_amx() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of Linux 5.16 and later
  static const bool may = has_bit(0, Register::edx, 22) && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
}

}  // namespace trireme

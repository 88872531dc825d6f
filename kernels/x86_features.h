// Instructions that this process may use. /proc/cpuinfo lists more, but an emulator may show its host's.
#pragma once

namespace trireme {

bool has_avx512_bf16_instructions();
// Asks the system, the first time. false if the processor has no bf16 products of tiles, or the system does not save them.
bool may_use_amx();

}  // namespace trireme

// OpenMP's run-time calls, for this whole program: loops of simulated threads run in one thread,
// since what libgomp keeps belongs to the one real thread. Other loops run likewise.
#include <cstdint>

extern "C" {

void GOMP_parallel(void (*body)(void*), void* data, unsigned, unsigned) { body(data); }
bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long, long, long* from, long* to) {
  *from = start, *to = end;
  return start < end;
}
bool GOMP_loop_nonmonotonic_dynamic_next(long*, long*) { return false; }
void GOMP_loop_end_nowait() {}
void GOMP_critical_name_start(void**) {}
void GOMP_critical_name_end(void**) {}
}

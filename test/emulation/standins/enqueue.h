// Bridge from the stand-ins of NVIDIA's libraries to the emulated GPU of the program that loads
// them.
#pragma once

// Makes the stream call work(state) when all before is done. Defined by the program.
extern "C" void trireme_enqueue(void* stream, void* state, void (*work)(void*));

// Graceful shutdown: on SIGTERM, SIGINT, SIGUSR1 or SIGUSR2 the run finishes its step, saves, and exits with 75.
#pragma once

#include <string>

namespace trireme {

// Watches for the signals from now on. A second SIGINT ends the program at once, as that signal does by default (130 in a shell);
// with `speaks`, a line on stderr comes first.
void watch_signals(bool speaks = true);
// The last signal that asked to stop, 0 if there is none.
int stop_signal();
// "SIGINT"
std::string signal_name(int signal);

}  // namespace trireme

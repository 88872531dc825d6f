// A wish to stop: SIGTERM, SIGINT, SIGUSR1 or SIGUSR2. The step in progress is finished, a checkpoint saved, exit code 75.
#pragma once

namespace trireme {

// Watches for the signals from now on. A second SIGINT ends the program at once.
void watch_signals();
// The signal that asked to stop, 0 if none has.
int stop_signal();

}  // namespace trireme

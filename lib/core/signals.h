// SPDX-License-Identifier: Apache-2.0
// Blocks every signal on this thread for a scope. Threads inherit the mask: the host's handlers never run on one that
// was started meanwhile, and what is written to a connection that has ended there raises no SIGPIPE.
#pragma once

#include <csignal>

namespace pkv {

class BlockedSignals {
  public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals &) = delete;
    BlockedSignals &operator=(const BlockedSignals &) = delete;

  private:
    sigset_t before_;
};

} // namespace pkv

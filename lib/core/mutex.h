// SPDX-License-Identifier: Apache-2.0
// A mutex that clang's -Wthread-safety can check, and the annotations for it.
#pragma once

#include <mutex>

#if defined(__clang__)
#define PKV_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PKV_THREAD_ANNOTATION(x)
#endif
#define PKV_CAPABILITY(x) PKV_THREAD_ANNOTATION(capability(x))
#define PKV_SCOPED_CAPABILITY PKV_THREAD_ANNOTATION(scoped_lockable)
#define PKV_GUARDED_BY(x) PKV_THREAD_ANNOTATION(guarded_by(x))
#define PKV_REQUIRES(...) PKV_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define PKV_EXCLUDES(...) PKV_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define PKV_ACQUIRE(...) PKV_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define PKV_RELEASE(...) PKV_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace pkv {

/// A mutex that waits awake for a while before it sleeps: what it guards takes microseconds at most, and to sleep and be woken
/// takes longer than that.
class PKV_CAPABILITY("mutex") Mutex {
  public:
    void lock() PKV_ACQUIRE() {
        if (mutex_.try_lock()) return;
        for (int turn = 0; turn < turns_awake; ++turn) {
            for (int i = 0; i < pauses; ++i) pause();
            if (mutex_.try_lock()) return;
        }
        mutex_.lock();
    }
    void unlock() PKV_RELEASE() { mutex_.unlock(); }

  private:
    static constexpr int turns_awake = 200; // about 20 microseconds
    static constexpr int pauses = 4;

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    std::mutex mutex_;
};

class PKV_SCOPED_CAPABILITY Lock {
  public:
    explicit Lock(Mutex &mutex) PKV_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    ~Lock() PKV_RELEASE() { mutex_.unlock(); }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

  private:
    Mutex &mutex_;
};

} // namespace pkv

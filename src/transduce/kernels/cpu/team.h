// Threads that run one function together, and wait for each other inside it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "vector.h"

namespace transduce {

// Where part `number` begins, if a whole is cut into `parts` nearly equal ones.
inline int part(int whole, int number, int parts) {
    return static_cast<int>(static_cast<int64_t>(whole) * number / parts);
}

// A counter that threads wait for: they watch it for a while, then sleep, so that waiting threads do not occupy a
// machine with too few cores for all.
class Signal {
   public:
    unsigned read() const { return value_.load(std::memory_order_acquire); }

    void raise() {
        value_.fetch_add(1);
        if (sleepers_.load() == 0) return;
        std::lock_guard<std::mutex> hold(mutex_);
        wake_.notify_all();
    }

    void wait_beyond(unsigned seen) {
        const auto begin = std::chrono::steady_clock::now();
        do {
            for (int turn = 0; turn < 64; ++turn) {
                if (read() != seen) return;
                rest();
            }
        } while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(30));
        std::unique_lock<std::mutex> hold(mutex_);
        ++sleepers_;
        wake_.wait(hold, [&] { return value_.load() != seen; });
        --sleepers_;
    }

   private:
    static void rest() {
#if defined(__x86_64__) || defined(__i386__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    std::atomic<unsigned> value_{0};
    std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable wake_;
};

class Team;

// One of the threads, as the function sees it.
struct Worker {
    Team& team;
    int number, count;

    struct Range {
        int first, end;
    };

    // This worker's share of some equal pieces of work.
    Range share(int pieces) const {
        return {part(pieces, number, count), part(pieces, number + 1, count)};
    }

    void meet() const;  // wait until all have come here
};

class Team {
   public:
    explicit Team(int count) : count_(count) {
        try {
            for (int number = 1; number < count; ++number) threads_.emplace_back([this, number] { serve(number); });
        } catch (...) {  // the system has no more threads
            dismiss();
            throw;
        }
    }

    ~Team() { dismiss(); }

    // Run the function on all threads, including this one.
    void run(const std::function<void(Worker)>& function) {
        if (count_ > 1) {
            function_ = &function;
            begin_.raise();
        }
        function(Worker{*this, 0, count_});
        meet();
    }

    void meet() {
        if (count_ == 1) return;
        const unsigned seen = met_.read();
        if (arrived_.fetch_add(1) + 1 == count_) {
            arrived_.store(0);
            met_.raise();
        } else {
            met_.wait_beyond(seen);
        }
    }

   private:
    void dismiss() {
        stop_ = true;
        begin_.raise();
        for (std::thread& thread : threads_) thread.join();
    }

    void serve(int number) {
        for (unsigned seen = 0;; ++seen) {
            begin_.wait_beyond(seen);
            if (stop_) return;
            (*function_)(Worker{*this, number, count_});
            meet();
        }
    }

    const int count_;
    const std::function<void(Worker)>* function_ = nullptr;
    std::atomic<bool> stop_{false};
    std::atomic<int> arrived_{0};
    Signal begin_, met_;
    std::vector<std::thread> threads_;
};

inline void Worker::meet() const { team.meet(); }

}  // namespace transduce

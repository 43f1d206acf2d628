// Memory that begins as zeros and costs nothing until it is written to.
#pragma once

#include <cstdlib>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

#include "vector.h"

namespace transduce {

class Memory {
   public:
    Memory() = default;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { release(); }

    // Release what was held, and make room for this many bytes, aligned to 64 or to a large page. Large pages are best
    // for weights, which are read over and over.
    void reserve(int64_t bytes, bool large_pages = false) {
        release();
        const int64_t large = 1 << 21;
        size_ = bytes + (large_pages ? large : 0);
        if (bytes == 0) return;
#if defined(__unix__) || defined(__APPLE__)
        int flags = MAP_PRIVATE | MAP_ANON;
#if defined(MAP_NORESERVE)
        flags |= MAP_NORESERVE;
#endif
        void* given = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (given == MAP_FAILED) throw std::bad_alloc();
#else
        void* given = std::calloc(1, size_ += 64);
        if (given == nullptr) throw std::bad_alloc();
#endif
        given_ = given;
        const int64_t step = large_pages ? large : 64;
        data_ = reinterpret_cast<char*>(round_up(reinterpret_cast<intptr_t>(given), step));
#if defined(__linux__)
        if (large_pages) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
    }

    template <class Type>
    Type* at(int64_t place = 0) const {
        return reinterpret_cast<Type*>(data_) + place;
    }

   private:
    void release() {
        if (given_ == nullptr) return;
#if defined(__unix__) || defined(__APPLE__)
        munmap(given_, size_);
#else
        std::free(given_);
#endif
        given_ = nullptr;
    }

    void* given_ = nullptr;
    char* data_ = nullptr;
    int64_t size_ = 0;
};

// Such memory for an array of some type.
template <class Type>
class Array {
   public:
    void reserve(int64_t count) { memory_.reserve(count * static_cast<int64_t>(sizeof(Type))); }
    Type* at(int64_t place = 0) const { return memory_.at<Type>(place); }

   private:
    Memory memory_;
};

}  // namespace transduce

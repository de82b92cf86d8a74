"""CUDA C of the kernels that measure the memory hierarchy. Each function returns the source of one kernel.

Loads are written in PTX where the cache matters: ``ld.global.ca`` is cached in L1 and L2, ``ld.global.cg`` only in L2.
"""

from __future__ import annotations

THREADS = 512
"""Threads per block of the kernels that measure bandwidth."""
LINE_BYTES = 128
"""Bytes of a cache line: the distance of the steps of a pointer chase."""
SHARED_WORDS = 4096
"""32-bit words of shared memory, 16 KiB."""


def chase_kernel() -> str:
    """Returns a pointer chase: each load gives the address of the next, so that its time is the latency."""
    return r"""
extern "C" __global__ void chase(const unsigned* next, long long* out, unsigned at, int warm_up, int steps) {
    long long begin = clock64();
    for (int i = 0; i < warm_up; i++) at = next[at];
    if (at == 0xffffffffu) out[3] = at;                 // the loop above must end before the clock is read
    long long start = clock64();
    for (int i = 0; i < steps; i++) at = next[at];
    if (at == 0xffffffffu) out[3] = at;
    long long end = clock64();
    out[0] = at;
    out[1] = end - start;                               // clocks of the measured steps
    out[2] = end - begin;                               // clocks of the entire kernel
}
"""


def shared_chase_kernel() -> str:
    """Returns a pointer chase in shared memory."""
    return r"""
extern "C" __global__ void chase_shared(long long* out, int steps) {
    __shared__ unsigned next[4096];
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) next[i] = (i + 33) % 4096;
    __syncthreads();
    if (threadIdx.x) return;
    unsigned at = 0;
    long long start = clock64();
    for (int i = 0; i < steps; i++) at = next[at];
    if (at == 0xffffffffu) out[3] = at;
    long long end = clock64();
    out[0] = at;
    out[1] = out[2] = end - start;
}
"""


def register_chain_kernel() -> str:
    """Returns a chain of multiply-adds, each of which needs the register that the one before has written."""
    return r"""
extern "C" __global__ void chain_registers(long long* out, int steps) {
    unsigned x = 1;
    long long start = clock64();
    #pragma unroll 64
    for (int i = 0; i < steps; i++) asm volatile("mad.lo.u32 %0, %0, 5, 1;" : "+r"(x));
    if (x == 0xffffffffu) out[3] = x;
    long long end = clock64();
    out[0] = x;
    out[1] = out[2] = end - start;
}
"""


def read_kernel(cache: str) -> str:
    """Returns the kernel that reads a working set repeatedly, 16 bytes per thread and load.

    The set has ``parts`` parts. Each block reads one of them, and if there are more blocks, several read the same part.

    Args:
        cache: ``ca`` to read through L1 and L2, ``cg`` only through L2.
    """
    return r"""
__device__ __forceinline__ uint4 load_CACHE(const uint4* at) {
    uint4 v;
    asm volatile("ld.global.CACHE.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}
extern "C" __global__ void __launch_bounds__(512)
read_CACHE(const uint4* data, unsigned* sums, int count, int parts, int passes) {
    int part = blockIdx.x % parts;
    int first = (long long)count * part / parts, last = (long long)count * (part + 1) / parts;
    unsigned sum = 0;
    for (int pass = 0; pass < passes; pass++) {
        int i = first + threadIdx.x, step = blockDim.x;
        for (; i + 3 * step < last; i += 4 * step) {    // four loads in flight
            uint4 a = load_CACHE(data + i), b = load_CACHE(data + i + step);
            uint4 c = load_CACHE(data + i + 2 * step), d = load_CACHE(data + i + 3 * step);
            sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
            sum += c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
        }
        for (; i < last; i += step) {
            uint4 a = load_CACHE(data + i);
            sum += a.x + a.y + a.z + a.w;
        }
    }
    atomicAdd(sums, sum);
}
""".replace("CACHE", cache)


def shared_read_kernel() -> str:
    """Returns the kernel that reads shared memory, 16 bytes per thread and load, without bank conflicts."""
    return r"""
extern "C" __global__ void __launch_bounds__(512) read_shared(unsigned* sums, int passes) {
    __shared__ uint4 data[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) data[i] = make_uint4(i, 1, 2, 3);
    __syncthreads();
    unsigned address, sum = 0;
    asm volatile("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }"
                 : "=r"(address) : "l"(data) : "memory");
    for (int pass = 0; pass < passes; pass++) {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 v;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(address + 16 * (threadIdx.x + 512 * i)));
            sum += v.x + v.y + v.z + v.w;
        }
    }
    atomicAdd(sums, sum);
}
"""


def strided_kernel() -> str:
    """Returns the kernel in which neighboring threads read elements that are ``stride`` elements apart."""
    return r"""
extern "C" __global__ void read_strided(const unsigned* data, unsigned* sums, int count, int stride) {
    unsigned sum = 0;
    int threads = gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count / stride; i += threads) sum += data[i * stride];
    atomicAdd(sums, sum);
}
"""


def occupied_kernel(held: int) -> str:
    """Returns the kernel that reads memory while each thread holds more registers than it needs.

    Each thread has one load in flight, so that only more resident threads can hide the latency.

    Args:
        held: Registers that each thread holds in addition.
    """
    return r"""
extern "C" __global__ void __launch_bounds__(256) read_holding_HELD(const uint4* data, unsigned* sums, int count) {
    extern __shared__ unsigned unused[];
    unsigned held[HELD + 1], sum = 0;
    const unsigned* words = (const unsigned*)data;
    #pragma unroll
    for (int k = 0; k <= HELD; k++) asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(held[k]) : "l"(words + k));
    #pragma unroll 1
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        uint4 v = data[i];
        sum += v.x + v.y + v.z + v.w;
    }
    unsigned mixed = 0;
    #pragma unroll
    for (int k = 0; k <= HELD; k++) mixed = mixed * (sum | 1) + held[k];   // needs the registers after the loop
    if (count < 0) sum += unused[threadIdx.x] + mixed;
    if (mixed == 0xffffffffu) sums[1] = mixed;
    atomicAdd(sums, sum);
}
""".replace("HELD", str(held))


def register_read_kernel() -> str:
    """Returns the kernel whose multiply-adds read three registers and write one, without waiting for each other."""
    return r"""
extern "C" __global__ void __launch_bounds__(512) read_registers(unsigned* sums, int unit, int passes) {
    float one = unit;
    float a[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    #pragma unroll 8
    for (int pass = 0; pass < passes; pass++) {
        #pragma unroll
        for (int k = 0; k < 8; k++) a[k] = a[k] * one + one;
    }
    unsigned sum = 0;
    for (int k = 0; k < 8; k++) sum += (unsigned)a[k];
    atomicAdd(sums, sum);
}
"""

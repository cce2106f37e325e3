// What the two matmul kernels share: four neighbours of either factor at a time, and the epilogue.
// The right factor is [N, K] where TRANSPOSED (the weight of a linear layer), else [K, N].
#if WEIGHT == nibbles
// The right factor [K, N] is nibbles, eight to a word and offset by 8, its rows without gaps; a scale belongs to GROUP
// neighbours of a row and lies in [N / GROUP, K].
// TScale: f32, f16
override GROUP: u32 = 32;
override SCALE_STRIDE: u32 = 1; // at least K
#endif
override TRANSPOSED: bool = false;
override ADDEND: bool = false;

struct Params {
#include matmul/params
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> addend: array<T>;

#if WEIGHT == nibbles
@group(0) @binding(3) var<storage, read> weight: array<u32>;
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(3) var<storage, read> weight: array<V>;
@group(0) @binding(4) var<uniform> params: Params;
#endif

#include common/clamped

#include matmul/left

#include matmul/right
#include matmul/store
